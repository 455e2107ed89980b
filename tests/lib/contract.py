"""Checks everything that the tests send and receive against the OpenAPI document (docs/openapi, merged).

The client of tests/lib/caisson.py gives every exchange to `Exchange`; each violation of the document goes to
`violations`, and tests/lib/suite.py fails the current test. The document must allow every request that succeeds, and
must describe every answer. A test that deliberately sends undescribed requests sets `checked=False`. CAISSON_CONTRACT=0
turns the check off.

Schemas are compiled into closures that only answer yes or no (a record takes some 50 us). Values that they refuse, and
keywords that they do not know, go to jsonschema, which decides."""
import functools
import importlib.machinery
import importlib.util
import json
import os
import re
import threading
import urllib.parse

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def document():
    """The document that tools/openapi makes from docs/openapi."""
    loader = importlib.machinery.SourceFileLoader("openapi", os.path.join(TOP, "tools/openapi"))
    tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("openapi", loader))
    loader.exec_module(tool)
    return json.loads(tool.merged())


DOCUMENT = document()
METHODS = ("get", "put", "post", "patch", "delete")
OPERATIONS = {(method.upper(), path): operation for path, item in DOCUMENT["paths"].items()
              for method, operation in item.items() if method in METHODS}
ENABLED = os.environ.get("CAISSON_CONTRACT") != "0"
BODY_MAX = 16 << 20  # of longer bodies only the head is checked

violations = []
checked = {}  # (method, path, status) -> how often
lock = threading.Lock()


def note(text):
    with lock:
        if len(violations) < 50:
            violations.append(text)


def take():
    """Returns and clears the violations noted since the last call."""
    with lock:
        found = list(violations)
        violations.clear()
        return found


def resolved(node):
    while "$ref" in node:
        place = DOCUMENT
        for key in node["$ref"].removeprefix("#/").split("/"):
            place = place[key.replace("~1", "/").replace("~0", "~")]
        node = place
    return node


# --- schemas ---

TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "integer": lambda value: (isinstance(value, int) and not isinstance(value, bool)) or
                             (isinstance(value, float) and value.is_integer()),
}
SILENT = {"description", "title", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "$comment",
          "contentEncoding", "contentMediaType", "additionalProperties", "patternProperties"}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def of_properties(schema):
    known = {name: compiled(value) for name, value in schema.get("properties", {}).items()}
    patterns = [(re.compile(name), compiled(value)) for name, value in schema.get("patternProperties", {}).items()]
    others = schema.get("additionalProperties", True)
    rest = (lambda value: others) if isinstance(others, bool) else compiled(others)

    def check(value):
        if not isinstance(value, dict):
            return True
        for name, item in value.items():
            hits = [test for pattern, test in patterns if pattern.search(name)] if patterns else ()
            if name in known:
                if not known[name](item):
                    return False
            elif not hits and not rest(item):
                return False
            for test in hits:
                if not test(item):
                    return False
        return True
    return check


def keyword(name, value):
    """A function that checks a value against one keyword; None for an unknown keyword."""
    if name == "type":
        tests = [TYPES[kind] for kind in (value if isinstance(value, list) else [value])]
        return tests[0] if len(tests) == 1 else lambda item: any(test(item) for test in tests)
    if name == "required":
        return lambda item: not isinstance(item, dict) or all(key in item for key in value)
    if name == "items":
        test = compiled(value)
        return lambda item: not isinstance(item, list) or all(map(test, item))
    if name == "enum":
        return lambda item: any(item == one and isinstance(item, bool) == isinstance(one, bool) for one in value)
    if name == "const":
        return lambda item: item == value and isinstance(item, bool) == isinstance(value, bool)
    if name in ("allOf", "anyOf", "oneOf"):
        tests = [compiled(one) for one in value]
        wanted = {"allOf": lambda count: count == len(tests), "anyOf": lambda count: count > 0, "oneOf": lambda count: count == 1}[name]
        return lambda item: wanted(sum(bool(test(item)) for test in tests))
    if name == "$ref":
        return lambda item: by_reference(value)(item)
    if name == "pattern":
        expression = re.compile(value)
        return lambda item: not isinstance(item, str) or expression.search(item) is not None
    if name == "propertyNames":
        test = compiled(value)
        return lambda item: not isinstance(item, dict) or all(map(test, item))
    bounds = {"minimum": (is_number, lambda item: item >= value), "maximum": (is_number, lambda item: item <= value),
              "exclusiveMinimum": (is_number, lambda item: item > value), "exclusiveMaximum": (is_number, lambda item: item < value),
              "minLength": (TYPES["string"], lambda item: len(item) >= value), "maxLength": (TYPES["string"], lambda item: len(item) <= value),
              "minItems": (TYPES["array"], lambda item: len(item) >= value), "maxItems": (TYPES["array"], lambda item: len(item) <= value),
              "minProperties": (TYPES["object"], lambda item: len(item) >= value),
              "maxProperties": (TYPES["object"], lambda item: len(item) <= value)}
    if name in bounds:
        concerns, holds = bounds[name]
        return lambda item: not concerns(item) or holds(item)
    if name == "format" and value == "date-time":
        time = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
        return lambda item: not isinstance(item, str) or time.match(item) is not None
    return None


def compiled(schema):
    if isinstance(schema, bool):
        return lambda value: schema
    tests = []
    if set(schema) & {"properties", "additionalProperties", "patternProperties"}:
        tests.append(of_properties(schema))
    for name, value in schema.items():
        if name == "properties" or name in SILENT or name.startswith("x-"):
            continue
        test = keyword(name, value)
        if test is None:
            return lambda item: False  # jsonschema decides
        tests.append(test)
    if len(tests) == 1:
        return tests[0]
    return lambda value: all(test(value) for test in tests)


@functools.lru_cache(None)
def by_reference(reference):
    return compiled(resolved({"$ref": reference}))


_compiled = {}


def errors_of(value, schema):
    """The errors in a value, as texts; an empty list if it is valid."""
    entry = _compiled.get(id(schema))
    if entry is None:
        entry = _compiled[id(schema)] = (compiled(schema), schema)
    if entry[0](value):
        return []
    import jsonschema  # slow to load and rarely needed
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        validator = jsonschema.Draft202012Validator(schema, resolver=jsonschema.RefResolver("", DOCUMENT),
                                                    format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        return [f"/{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error in validator.iter_errors(value)]


# --- operations ---

def _tree():
    tree = {}
    for path in DOCUMENT["paths"]:
        place = tree
        for segment in path.split("/")[1:]:
            place = place.setdefault("{}" if segment.startswith("{") else segment, {})
        place[None] = path
    return tree


TREE = _tree()


def path_of(path):
    """The path of the document that matches a request's path, or None. Fixed segments take precedence over
    parameters."""
    segments = path.split("/")[1:]

    def find(place, at):
        if at == len(segments):
            return place.get(None)
        for key in (segments[at], "{}"):
            if key in place and (key != "{}" or segments[at]):
                found = find(place[key], at + 1)
                if found:
                    return found
        return None
    return find(TREE, 0)


@functools.lru_cache(None)
def parameters(method, path):
    """The parameters of an operation by (where, name)."""
    found = {}
    for parameter in DOCUMENT["paths"][path].get("parameters", []) + OPERATIONS[method, path].get("parameters", []):
        parameter = resolved(parameter)
        found[parameter["in"], parameter["name"]] = parameter
    return found


def typed(text, schema):
    """Converts a text of a query or a path to the type of its schema."""
    kind = resolved(schema).get("type")
    if kind == "integer" and re.fullmatch(r"-?\d{1,30}", text):
        return int(text)
    if kind == "number":
        try:
            return float(text)
        except ValueError:
            return text
    if kind == "boolean" and text in ("true", "false", "1", "0"):
        return text in ("true", "1")
    return text


def without_nulls(value):
    """null means the same as a missing member."""
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value


def request_faults(method, path, target, body, content_type=None):
    """The reasons why the document does not allow a request."""
    operation, known = OPERATIONS[method, path], parameters(method, path)
    place, _, query = target.partition("?")
    names = re.findall(r"\{(\w+)\}", path)
    for name, value in zip(names, (segment for mark, segment in zip(path.split("/"), place.split("/")) if mark.startswith("{"))):
        if ("path", name) not in known:
            yield f"the path parameter {name} is not described"
            continue
        yield from (f"{name}: {fault}" for fault in errors_of(urllib.parse.unquote(value), known["path", name]["schema"]))
    given = urllib.parse.parse_qsl(query, keep_blank_values=True)
    for name, value in given:
        if ("query", name) not in known:
            yield f"the query parameter {name} is not described"
        elif value != "":
            schema = known["query", name]["schema"]
            yield from (f"?{name}: {fault}" for fault in errors_of(typed(value, schema), schema))
    for (where, name), parameter in known.items():
        if where == "query" and parameter.get("required") and name not in dict(given):
            yield f"the query parameter {name} is required"
    yield from body_faults(operation, body, content_type)


def body_faults(operation, body, content_type):
    described = resolved(operation.get("requestBody", {}))
    contents = described.get("content", {})
    if body is None or body == b"" or body == "":
        if described.get("required") and "application/json" in contents and not (content_type or "").startswith("application/octet"):
            if errors_of({}, contents["application/json"]["schema"]):
                yield "it needs a body"
        return
    if not contents:
        if body not in (b"{}", "{}"):
            yield "no body is described"
        return
    if "application/json" not in contents:
        return
    if (content_type or "").split(";")[0] not in ("", "application/json") and content_type.split(";")[0] in contents:
        return
    if not isinstance(body, (bytes, bytearray, str)):
        return
    try:
        value = json.loads(body)
    except (ValueError, UnicodeDecodeError):
        if len(contents) == 1:
            yield "the body is not JSON"
        return
    yield from (f"body: {fault}" for fault in errors_of(without_nulls(value), contents["application/json"]["schema"]))


def no_twice(pairs):
    """Makes an object of an answer. A repeated member is an error, because most clients lose one of the two."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"twice in one object: {', '.join(sorted({name for name in names if names.count(name) > 1}))}")
    return value


class Events:
    """The server-sent events of one answer, as they arrive. `x-caisson-events` has the schema of each event by its
    name; `*` is any other name; an event without a name is called `message`."""

    def __init__(self, what, described):
        self.what, self.described, self.rest = what, described, b""

    def feed(self, data):
        self.rest += data
        if len(self.rest) > BODY_MAX:
            self.rest = b""
        *frames, self.rest = self.rest.split(b"\n\n")
        for frame in frames:
            self.check(frame.decode("utf-8", "replace"))

    def check(self, frame):
        name, data = "message", None
        for line in frame.split("\n"):
            if line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data = (data + "\n" if data is not None else "") + line[5:].removeprefix(" ")
        if data is None or self.described is None:
            return
        schema = self.described.get(name, self.described.get("*"))
        if schema is None:
            note(f"{self.what}: the event `{name}` is not described")
            return
        try:
            value = json.loads(data, object_pairs_hook=no_twice)
        except ValueError as problem:
            note(f"{self.what}: the data of `{name}` is not JSON: {problem}: {data[:200]}")
            return
        for fault in errors_of(value, schema):
            note(f"{self.what}: event `{name}`: {fault}")


class Exchange:
    """One request and its answer. Call `begin` when the head of the answer is there, `data` with the bytes read, then
    `end`."""

    def __init__(self, method, target, body, content_type):
        self.method, self.body, self.content_type = method, body, content_type
        # The target may be a whole URL, for example a signed one.
        self.target = target = "/" + target.split("/", 3)[3] if target.startswith(("http://", "https://")) else target
        self.path = path_of(urllib.parse.unquote(target.partition("?")[0]))
        self.events = self.schema = None
        self.received, self.length = [], 0

    def begin(self, status, headers):
        self.status = status
        operation = OPERATIONS.get(("GET" if self.method == "HEAD" else self.method, self.path))
        self.what = f"{status} of {self.method} {self.path or self.target.partition('?')[0]}"
        if not headers.get("X-Request-Id"):
            note(f"{self.what}: no X-Request-Id")
        self.request_id = headers.get("X-Request-Id")
        if operation is None:
            if status < 400:
                note(f"{self.what}: the document knows no such operation")
            self.schema = DOCUMENT["components"]["schemas"]["Error"] if status >= 400 else None
            return
        with lock:
            checked[self.method, self.path, status] = checked.get((self.method, self.path, status), 0) + 1
        if status < 300 and self.method != "HEAD":
            for fault in request_faults(self.method, self.path, self.target, self.body, self.content_type):
                note(f"{self.method} {self.target} was taken ({status}), and the document does not allow it: {fault}")
        self.begin_answer(operation, headers)

    def begin_answer(self, operation, headers):
        described = operation["responses"].get(str(self.status))
        if described is None and self.status >= 400:
            described = operation["responses"].get("default")
        if described is None:
            note(f"{self.what}: this status is not described")
            return
        described = resolved(described)
        for name, header in described.get("headers", {}).items():
            header = resolved(header)
            value = headers.get(name)
            if value is None and header.get("required"):
                note(f"{self.what}: the header {name} is missing")
            elif value is not None and "schema" in header:
                for fault in errors_of(typed(value, header["schema"]), header["schema"]):
                    note(f"{self.what}: header {name}: {fault}")
        for wanted, name in ((401, "WWW-Authenticate"), (405, "Allow"), (429, "Retry-After")):
            if self.status == wanted and not headers.get(name):
                note(f"{self.what}: the header {name} is missing")
        contents, kind = described.get("content", {}), (headers.get("Content-Type") or "").split(";")[0]
        if self.status == 101 or self.method == "HEAD":
            return
        if not contents:
            if kind:
                note(f"{self.what}: a body of type {kind} is not described")
        elif kind not in contents and "*/*" not in contents:
            note(f"{self.what}: the type {kind or 'none'} is not described: {', '.join(contents)}")
        elif kind == "application/json":
            self.schema = contents[kind].get("schema")
        elif kind == "text/event-stream":
            described = contents[kind].get("x-caisson-events")
            self.events = Events(self.what, resolved(described) if described else None)

    def data(self, data):
        if self.events:
            self.events.feed(bytes(data))
        elif self.schema is not None and self.length < BODY_MAX:
            self.received.append(bytes(data))
            self.length += len(data)

    def end(self):
        schema, self.schema = self.schema, None
        if schema is None or self.length >= BODY_MAX or self.method == "HEAD":
            return
        data = b"".join(self.received)
        try:
            value = json.loads(data, object_pairs_hook=no_twice)
        except ValueError as problem:
            note(f"{self.what}: it is not JSON: {problem}: {data[:200]!r}")
            return
        for fault in errors_of(value, schema):
            note(f"{self.what}: {fault}")
        if self.status >= 400 and isinstance(value, dict) and value.get("request_id") != self.request_id:
            note(f"{self.what}: the request id of the body is not the header's")
