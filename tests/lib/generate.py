"""Generates requests from docs/openapi: valid ones, ones at the bounds of the allowed values, invalid and hostile ones.
Nothing is random: the same document gives the same requests. Used by tests/api/test_generated.py and
test_foreign.py."""
import json
import re
import urllib.parse

from contract import OPERATIONS, errors_of, parameters, resolved

# Values that the server can use, so that a request gets past the checks of its form.
HINTS = {
    "cmd": "true", "command": "true", "argv": ["true"], "path": "/tmp/generated", "from": "/tmp/generated", "to": "/tmp/generated-copy",
    "target": "generated", "pattern": "x", "glob": "*", "old": "a", "new": "b", "mode": "0644", "owner": "0:0", "user": "root",
    "cwd": "/", "code": "1", "language": "bash", "signal": "TERM", "scopes": ["sandboxes:read"], "template": "host", "stdin": "text",
    "content": "text", "workspace": "generated", "label": "a label", "stdin_base64": "AAEC", "content_base64": "AAEC", "data": "text",
    "timeout_seconds": 1, "timeout_ms": 100, "wait_ms": 1, "wait_seconds": 0, "timeout": 1, "network": "off", "key": "generated",
    "env": {"A": "b"}, "metadata": {"a": "b"}, "labels": {"a": "b"}, "isolation": "auto", "limit": 1, "tail": 1, "max": 1,
}
NOWHERE = "abcdefghijklmnop"  # a valid id that nothing has
HOSTILE_TEXTS = [
    "'; DROP TABLE sandboxes; --", "%s%n%x%p", "${jndi:ldap://x}", "../../../../etc/passwd", "__proto__", "constructor", "\u202e\ufeff\U0001f4a3",
    "-1", "0x10", "1e999", "NaN", "Infinity", "null", "true", "9" * 40, " ", "a" * 100000,
]
TYPE_SAMPLES = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": ["text"], "object": {"a": "b"}, "null": None}
KINDS = ("valid", "edge", "invalid", "hostile")


class Case:
    def __init__(self, kind, name, target, body=None, headers=(), method=None):
        self.kind, self.name, self.target, self.body, self.headers, self.method = kind, name, target, body, dict(headers), method


def types_of(schema):
    schema = resolved(schema)
    kind = schema.get("type")
    if kind:
        return set(kind) if isinstance(kind, list) else {kind}
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return set().union(*(types_of(one) for one in schema[word]))
    if "allOf" in schema:
        return types_of(schema["allOf"][0])
    if "enum" in schema:
        return {next(name for name in ("boolean", "integer", "string", "null") if isinstance(value, {
            "boolean": bool, "integer": int, "string": str, "null": type(None)}[name])) for value in schema["enum"]}
    if "properties" in schema or "additionalProperties" in schema:
        return {"object"}
    return set(TYPE_SAMPLES)


def merged(schema):
    """One schema with the properties of all parts of an allOf."""
    schema = resolved(schema)
    if "allOf" not in schema:
        return schema
    result = {**schema, "properties": dict(schema.get("properties", {})), "required": list(schema.get("required", []))}
    del result["allOf"]
    for part in schema["allOf"]:
        part = merged(part)
        result["properties"].update(part.get("properties", {}))
        result["required"] += part.get("required", [])
        for key, value in part.items():
            result.setdefault(key, value)
    return result


def text_of_length(schema, length):
    """A text of that length that matches the pattern; None if none is found."""
    pattern = schema.get("pattern")
    for unit in ("a", "0", "A", "/a", "a="):
        text = (unit * (length // len(unit) + 1))[:length]
        if pattern is None or re.search(pattern, text):
            return text
    return None


def samples(schema, name="", depth=0):
    """Values that the schema allows, the simplest first."""
    schema = merged(schema)
    found = []
    if name in HINTS:
        found.append(HINTS[name])
    found += schema.get("examples", [])[:2]
    if "const" in schema:
        found.append(schema["const"])
    found += schema.get("enum", [])
    for word in ("oneOf", "anyOf"):
        for one in schema.get(word, []):
            found += samples(one, name, depth + 1)[:3]
    kinds = types_of(schema)
    if "string" in kinds:
        found += [text_of_length(schema, max(schema.get("minLength", 0), min(4, schema.get("maxLength", 4)))), NOWHERE, "0644", "2030-01-01T00:00:00Z"]
    if kinds & {"integer", "number"}:
        found += [schema.get("minimum", 1), schema.get("maximum", 1), 1]
    if "boolean" in kinds:
        found += [True, False]
    if "array" in kinds and depth < 4:
        items = samples(schema["items"], name, depth + 1)[:1] if "items" in schema else ["text"]
        found += [items * max(1, schema.get("minItems", 1)), []]
    if "object" in kinds and depth < 4:
        found += objects(schema, depth)
    if "null" in kinds:
        found.append(None)
    return [value for value in found if value is not None or "null" in kinds if not errors_of(value, schema)]


def objects(schema, depth=0):
    """An object with the required members, then one more object for each other property."""
    properties = schema.get("properties", {})
    base = {}
    for name in schema.get("required", []):
        values = samples(properties.get(name, {}), name, depth + 1)
        if values:
            base[name] = values[0]
    found = [base]
    for name, value in properties.items():
        if name not in base:
            found += [{**base, name: sample} for sample in samples(value, name, depth + 1)[:1]]
    others = schema.get("additionalProperties")
    if not properties and isinstance(others, dict):
        found += [{"a": sample} for sample in samples(others, "", depth + 1)[:1]]
    return found


def edges(schema):
    """Values at the bounds (all allowed), and values just beyond them (none allowed)."""
    schema, kinds = merged(schema), types_of(schema)
    inside, outside = [], []
    if kinds & {"integer", "number"}:
        step = 1 if "integer" in kinds else 0.001
        for bound, sign in (("minimum", -1), ("maximum", 1)):
            if bound in schema:
                inside += [schema[bound], schema[bound] - sign * step]
                outside.append(schema[bound] + sign * step)
        outside += [10 ** 30, -1] if "minimum" in schema or "integer" in kinds else []
    if "string" in kinds:
        for bound, more in (("minLength", -1), ("maxLength", 1)):
            if bound in schema and schema[bound] <= 1 << 17:
                inside.append(text_of_length(schema, schema[bound]))
                if schema[bound] + more >= 0:
                    outside.append("a" * (schema[bound] + more))
        outside.append("a" * 200000 if "maxLength" in schema else None)
    if "array" in kinds:
        item = (samples(schema.get("items", {})) or ["text"])[0]
        if schema.get("maxItems", 1 << 20) <= 4096:
            inside.append([item] * schema["maxItems"])
            outside.append([item] * (schema["maxItems"] + 1))
        if schema.get("minItems"):
            outside.append([item] * (schema["minItems"] - 1))
    return ([value for value in inside if value is not None and not errors_of(value, schema)],
            [value for value in outside if value is not None and errors_of(value, schema)])


def wrong(schema):
    """Values of various types, none of which the schema allows."""
    values = [value for kind, value in TYPE_SAMPLES.items() if kind != "null"] + ["\x00", "no such value", -1, 1.5, [[]], [None], {"nonsense": 1}]
    return [value for value in values if errors_of(value, schema)]


# --- requests ---

def json_body(operation):
    """(schema, required) of its JSON body, or None."""
    described = resolved(operation.get("requestBody", {}))
    content = described.get("content", {}).get("application/json")
    return (merged(content["schema"]), described.get("required", False)) if content else None


def query_text(value):
    return {True: "1", False: "0"}.get(value, value) if isinstance(value, bool) else \
        str(value) if isinstance(value, (int, float, str)) else json.dumps(value)


class Requests:
    """The requests of one operation. `values` has values for the parameters of its path."""

    def __init__(self, method, path, values):
        self.method, self.path, self.values = method, path, values
        self.operation, self.known = OPERATIONS[method, path], parameters(method, path)
        body = json_body(self.operation)
        self.schema = body[0] if body else None
        self.contents = resolved(self.operation.get("requestBody", {})).get("content", {})
        self.query = {}
        for (where, name), parameter in self.known.items():
            if where == "query" and parameter.get("required"):
                self.query[name] = query_text((samples(parameter["schema"], name) or ["text"])[0])
        self.base = objects(self.schema)[0] if self.schema and "object" in types_of(self.schema) else None
        if self.base is not None and errors_of(self.base, self.schema):
            # For `anyOf` with required names: use an object with one more member if that is allowed.
            self.base = next((one for one in objects(self.schema) if not errors_of(one, self.schema)), self.base)

    def target(self, query=None, **values):
        path = re.sub(r"\{(\w+)\}", lambda match: values.get(match[1]) or urllib.parse.quote(self.values.get(match[1], NOWHERE), safe=""), self.path)
        query = self.query if query is None else query
        return path + ("?" + urllib.parse.urlencode(query, errors="surrogatepass") if query else "")

    def body(self, value=None):
        if self.schema is not None:
            return json.dumps(self.base if value is None else value).encode()
        return b"some bytes" if self.contents else None

    def plain(self):
        return Case("valid", "plain", self.target(), self.body())

    def cases(self):
        yield self.plain()
        yield from self.of_query()
        if self.base is not None:
            yield from self.of_body()
        yield from self.hostile_places()
        if self.schema is not None:
            yield from self.hostile_bodies()

    def of_query(self):
        for (where, name), parameter in self.known.items():
            if where != "query":
                continue
            schema = parameter["schema"]
            for value in samples(schema, name):
                yield Case("valid", f"?{name}={value!r:.40}", self.target({**self.query, name: query_text(value)}), self.body())
            inside, outside = edges(schema)
            for value in inside:
                if len(query_text(value)) < 4000:
                    yield Case("edge", f"?{name}={value!r:.40}", self.target({**self.query, name: query_text(value)}), self.body())
            texts = [query_text(value) for value in outside] + ["no such value", "-1", "1.5", "[]"]
            for text in dict.fromkeys(texts):
                # An empty value means the same as a missing one.
                if len(text) < 4000 and (text or parameter.get("required")) and self.text_is_wrong(text, schema):
                    yield Case("invalid", f"?{name}={text!r:.40}", self.target({**self.query, name: text}), self.body())
            if parameter.get("required"):
                rest = {key: value for key, value in self.query.items() if key != name}
                yield Case("invalid", f"without {name}", self.target(rest), self.body())
            twice = urllib.parse.urlencode([*self.query.items(), (name, "1"), (name, "1")])
            yield Case("hostile", f"{name} twice", self.target({}) + "?" + twice, self.body())
        yield Case("invalid", "an unknown query parameter", self.target({**self.query, "nonsense": "1"}), self.body())

    @staticmethod
    def text_is_wrong(text, schema):
        """True if the schema allows neither the text nor any value that it can be parsed as."""
        values = [text]
        try:
            values.append(json.loads(text))
        except ValueError:
            pass
        return all(errors_of(value, schema) for value in values)

    def of_body(self):
        properties = self.schema.get("properties", {})
        for body in objects(self.schema):
            if not errors_of(body, self.schema):
                yield Case("valid", f"body {list(body)}", self.target(), self.body(body))
        for name, schema in properties.items():
            rest = self.beside(name)
            inside, outside = edges(schema)
            for value in samples(schema, name) + inside:
                body = {**rest, name: value}
                if not errors_of(body, self.schema):
                    yield Case("edge", f"{name}={value!r:.40}", self.target(), self.body(body))
            for value in outside + wrong(schema):
                yield Case("invalid", f"{name}={value!r:.40}", self.target(), self.body({**rest, name: value}))
            yield Case("hostile", f"{name}=null", self.target(), self.body({**rest, name: None}))
            for text in HOSTILE_TEXTS if "string" in types_of(schema) else ():
                yield Case("hostile", f"{name}={text!r:.20}", self.target(), self.body({**rest, name: text}))
        for name in self.schema.get("required", []):
            yield Case("invalid", f"without {name}", self.target(), self.body({key: value for key, value in self.base.items() if key != name}))
        if self.schema.get("additionalProperties") is False:
            yield Case("invalid", "an unknown field", self.target(), self.body({**self.base, "nonsense": 1}))

    def beside(self, name):
        """The other members of a body that has this property."""
        rest = {key: value for key, value in self.base.items() if key != name}
        for body in objects(self.schema):
            if name in body and not errors_of(body, self.schema):
                return {key: value for key, value in body.items() if key != name}
        return rest

    def hostile_places(self):
        """Hostile variants of any path."""
        for name in re.findall(r"\{(\w+)\}", self.path):
            for text in ("..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "x%00y", "%ff", "%c0%af", "a" * 200, "A", "%27%3B--", "%25s%25n",
                         "__proto__", "%ED%A0%80", "-", "%20", NOWHERE + "x"):
                yield Case("hostile", f"{{{name}}}={text:.20}", self.target(None, **{name: text}), self.body())
        plain = self.target()
        sign = "&" if "?" in plain else "?"
        for text in ("%00=1", "a[]=1", "=", "&&&", "%", "%zz=1", "__proto__=1", "x=" + "y" * 7000, "&".join(f"p{i}=1" for i in range(500))):
            yield Case("hostile", f"query {text:.20}", plain + sign + text, self.body())
        yield Case("hostile", "a path of 9000", plain.partition("?")[0] + "/a" * 4500, self.body())
        yield Case("hostile", "an empty segment", plain.replace("/", "//", 1), self.body())
        yield Case("hostile", "a slash behind", plain.partition("?")[0] + "/", self.body())
        for headers in ({"Idempotency-Key": "k" * 5000}, {"Range": "bytes=9-1,99999999999999999999-"}, {"Last-Event-ID": "-1"},
                        {"X-Request-Id": "a b\tc"}, {"Content-Type": "text/html"}, {"Accept": "*/" * 2000}, {"Upgrade": "websocket", "Connection": "Upgrade"},
                        {"Sec-WebSocket-Key": "x", "Sec-WebSocket-Version": "99", "Upgrade": "websocket", "Connection": "Upgrade"}):
            yield Case("hostile", f"header {next(iter(headers))}", plain, self.body(), headers)
        for method in ("HEAD", "OPTIONS", "TRACE", "PROPFIND", "GET", "POST", "DELETE"):
            if (method, self.path) not in OPERATIONS:
                yield Case("hostile", method, plain, None, method=method)

    def hostile_bodies(self):
        name = next(iter(self.schema.get("properties", {})), "a")
        quoted = json.dumps(name)
        base = json.dumps(self.base)[:-1] + (", " if self.base else "")
        for title, body in (
                ("nothing at all", b""), ("not JSON", b"nonsense"), ("an array", b"[]"), ("null", b"null"), ("a number", b"1"), ("a text", b'"x"'),
                ("half", b'{"a": '), ("text behind", self.body() + b"x"), ("two", self.body() + self.body()), ("a BOM", b"\xef\xbb\xbf" + self.body()),
                ("UTF-16", self.body().decode().encode("utf-16")), ("not UTF-8", b'{%s: "\xff\xfe"}' % quoted.encode()),
                ("a surrogate alone", b'{%s: "\\ud800"}' % quoted.encode()), ("a NUL", b'{%s: "a\\u0000b"}' % quoted.encode()),
                ("a raw NUL", b'{%s: "a\x00b"}' % quoted.encode()), ("NaN", b"{%s: NaN}" % quoted.encode()), ("1e999", b"{%s: 1e999}" % quoted.encode()),
                ("a huge number", b"{%s: %s}" % (quoted.encode(), b"9" * 5000)), ("-0", b"{%s: -0}" % quoted.encode()),
                ("deep", b'{"a":' * 20000 + b"1" + b"}" * 20000), ("deep arrays", b"{%s: %s}" % (quoted.encode(), b"[" * 100000)),
                ("a key twice", f"{base}{quoted}: 1, {quoted}: 2}}".encode()), ("prototype", f'{base}"__proto__": {{"a": 1}}}}'.encode()),
                ("an empty key", f'{base}"": 1}}'.encode()), ("a NUL in a key", f'{base}"a\\u0000": 1}}'.encode()),
                ("1 MiB of text", b'{%s: "%s"}' % (quoted.encode(), b"a" * ((1 << 20) - 100))), ("many keys", json.dumps({f"k{i}": i for i in range(20000)}).encode()),
                ("too much", b'{%s: "%s"}' % (quoted.encode(), b"a" * (3 << 20)))):
            yield Case("hostile", "body: " + title, self.target(), body)
