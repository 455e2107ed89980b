/* Sockets of every family, and options of the allowed ones. */
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "probe.h"

#define SOCKET(name, ...) NUMBERED("socket_" #name, SYS_socket, __VA_ARGS__)

/* Tries every family except the four that are useful inside, with every type. */
static long try_socket_every_family(void)
{
	for (int family = 0; family < 64; family++) {
		if (family == AF_UNIX || family == AF_INET || family == AF_INET6 ||
		    family == AF_NETLINK)
			continue;
		for (int type = 1; type <= 10; type++) {
			if (socket(family, type, 0) >= 0 || errno != EAFNOSUPPORT)
				return 0;
		}
	}
	return -1;
}

static long try_socket_every_netlink(void)
{
	for (int protocol = 1; protocol < 32; protocol++) {
		for (int type = SOCK_DGRAM; type <= SOCK_RAW; type++) {
			if (socket(AF_NETLINK, type, protocol) >= 0 || errno != EPROTONOSUPPORT)
				return 0;
		}
	}
	return -1;
}

/* Done if anything but TCP, UDP and datagram ICMP can be opened. */
static long try_socket_every_protocol(void)
{
	static const int families[] = {AF_INET, AF_INET6};
	for (size_t f = 0; f < COUNT(families); f++) {
		for (int protocol = 0; protocol < 300; protocol++) {
			for (int type = 1; type <= 10; type++) {
				int fd = socket(families[f], type, protocol);
				bool known =
				    (type == SOCK_STREAM && (protocol == 0 || protocol == 6)) ||
				    (type == SOCK_DGRAM && (protocol == 0 || protocol == 17 ||
							    protocol == 1 || protocol == 58));
				if (fd >= 0 && !known)
					return 0;
				if (fd >= 0)
					close(fd);
			}
		}
	}
	return absent();
}

static long socket_option_set(int family, int type, int level, int name, const void *value,
			      size_t size)
{
	return setsockopt(socket(family, type, 0), level, name, value, (socklen_t)size);
}

static long try_tcp_ulp(void)
{
	return socket_option_set(AF_INET, SOCK_STREAM, 6, 31, "tls", 3);
}

static long try_udp_encap(void)
{
	int kind = 2; /* UDP_ENCAP_ESPINUDP */
	return socket_option_set(AF_INET, SOCK_DGRAM, 17, 100, &kind, sizeof(kind));
}

/* Attached programs count against one limit of the whole host (net.core.bpf_jit_limit), and so
 * do system call filters: one sandbox could keep all others from starting. */
static long attach_filter(int level, int name)
{
	static struct {
		uint16_t code;
		uint8_t yes, no;
		uint32_t value;
	} accept_all = {0x06, 0, 0, 0xffff};
	struct {
		uint16_t length;
		void *code;
	} program = {1, &accept_all};
	return socket_option_set(AF_INET, SOCK_DGRAM, level, name, &program, sizeof(program));
}

static long try_attach_filter(void)
{
	return attach_filter(SOL_SOCKET, SO_ATTACH_FILTER);
}

static long try_attach_filter_high_bits(void)
{
	static uint64_t accept_all = 0x0000ffff00000006;
	struct {
		uint16_t length;
		void *code;
	} program = {1, &accept_all};
	return syscall(SYS_setsockopt, socket(AF_UNIX, SOCK_DGRAM, 0), SOL_SOCKET | HIGH_BITS,
		       SO_ATTACH_FILTER | HIGH_BITS, &program, sizeof(program));
}

static long try_attach_reuseport_filter(void)
{
	return attach_filter(SOL_SOCKET, 51); /* SO_ATTACH_REUSEPORT_CBPF */
}

static long try_attach_bpf(void)
{
	int fd = 0;
	return socket_option_set(AF_INET, SOCK_DGRAM, SOL_SOCKET, 50, &fd, sizeof(fd));
}

static long try_socket_mark(void)
{
	int value = 1;
	return socket_option_set(AF_INET, SOCK_DGRAM, SOL_SOCKET, SO_MARK, &value, sizeof(value));
}

static long try_socket_buffer_force(void)
{
	int value = 1 << 30;
	return socket_option_set(AF_INET, SOCK_DGRAM, SOL_SOCKET, SO_RCVBUFFORCE, &value,
				 sizeof(value));
}

static long try_iptables(void)
{
	char table[128] = "filter";
	return socket_option_set(AF_INET, SOCK_DGRAM, 0, 64, table,
				 sizeof(table)); /* IPT_SO_SET_REPLACE */
}

static long try_xfrm_policy(void)
{
	char policy[256] = "";
	return socket_option_set(AF_INET, SOCK_DGRAM, 0, 17, policy,
				 sizeof(policy)); /* IP_XFRM_POLICY */
}

static long try_transparent_proxy(void)
{
	int value = 1;
	return socket_option_set(AF_INET, SOCK_DGRAM, 0, 19, &value,
				 sizeof(value)); /* IP_TRANSPARENT */
}

static long try_tcp_repair(void)
{
	int value = 1;
	return socket_option_set(AF_INET, SOCK_STREAM, 6, 19, &value, sizeof(value));
}

static long try_loopback_down(void)
{
	struct ifreq request = {.ifr_name = "lo"};
	return ioctl(socket(AF_INET, SOCK_DGRAM, 0), SIOCSIFFLAGS, &request);
}

static long try_network_namespace_of_socket(void)
{
	return ioctl(socket(AF_INET, SOCK_DGRAM, 0), 0x894c, NULL); /* SIOCGSKNS */
}

/* Sends one request over NETLINK_ROUTE; returns the result in the kernel's answer. */
static long route_request(uint16_t type, const void *body, size_t size)
{
	struct {
		struct nlmsghdr head;
		char body[64];
	} request = {.head = {.nlmsg_len = (uint32_t)(NLMSG_HDRLEN + size),
			      .nlmsg_type = type,
			      .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE}};
	struct {
		struct nlmsghdr head;
		int32_t error;
		char rest[512];
	} answer;
	memcpy(request.body, body, size);
	int fd = socket(AF_NETLINK, SOCK_RAW, 0);
	if (fd < 0 || send(fd, &request, request.head.nlmsg_len, 0) < 0 ||
	    recv(fd, &answer, sizeof(answer), 0) < (ssize_t)(NLMSG_HDRLEN + sizeof(int32_t)))
		return -1;
	errno = -answer.error;
	return answer.head.nlmsg_type == NLMSG_ERROR && answer.error ? -1 : 0;
}

static long try_route_new_link(void)
{
	struct ifinfomsg link = {.ifi_family = AF_UNSPEC, .ifi_index = 1, .ifi_change = IFF_UP};
	return route_request(RTM_NEWLINK, &link, sizeof(link));
}

static long try_route_traffic_control(void)
{
	struct tcmsg control = {.tcm_ifindex = 1, .tcm_parent = 0xffffffff};
	return route_request(RTM_NEWQDISC, &control, sizeof(control));
}

static long try_route_namespace_id(void)
{
	struct rtgenmsg message = {0};
	return route_request(RTM_NEWNSID, &message, sizeof(message));
}

/* Two ways to sockets of the host: a name in its abstract name space, its loopback. */
static long try_abstract_socket_of_host(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *name = getenv("PROBE_ABSTRACT");
	if (!name || strlen(name) > sizeof(address.sun_path) - 2)
		return UNTRIED;
	memcpy(address.sun_path + 1, name, strlen(name));
	return connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address,
		       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)));
}

static long try_loopback_of_host(void)
{
	const char *port = getenv("PROBE_PORT");
	if (!port)
		return UNTRIED;
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)strtoul(port, NULL, 10)),
				      .sin_addr = {htonl(INADDR_LOOPBACK)}};
	return connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&address,
		       sizeof(address));
}

/* connect() of a datagram socket only looks for a route: nothing is sent. */
static long route_to(const char *text)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(53)};
	inet_pton(AF_INET, text, &address.sin_addr);
	return connect(socket(AF_INET, SOCK_DGRAM, 0), (struct sockaddr *)&address,
		       sizeof(address));
}

static long try_route_to_metadata(void)
{
	return route_to("169.254.169.254");
}

static long try_route_to_internet(void)
{
	return route_to("192.0.2.1"); /* for documentation, used by nobody */
}

static long try_route_to_internet6(void)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(53)};
	inet_pton(AF_INET6, "2001:db8::1", &address.sin6_addr);
	return connect(socket(AF_INET6, SOCK_DGRAM, 0), (struct sockaddr *)&address,
		       sizeof(address));
}

static long try_other_interfaces(void)
{
	/* With some modules loaded, every new network namespace has these; they are down and
	 * lead nowhere. */
	static const char known[] = " lo tunl0 gre0 gretap0 erspan0 ip_vti0 ip6_vti0 sit0 ip6tnl0 "
				    "ip6gre0 ";
	struct if_nameindex *list = if_nameindex();
	for (struct if_nameindex *at = list; at && at->if_index; at++) {
		char word[IF_NAMESIZE + 2];
		snprintf(word, sizeof(word), " %s ", at->if_name);
		if (!strstr(known, word))
			return 0;
	}
	return list ? absent() : -1;
}

static const struct attempt sockets_list[] = {
    SOCKET(raw, AF_INET, SOCK_RAW, 1),
    SOCKET(raw6, AF_INET6, SOCK_RAW, 58),
    SOCKET(sctp, AF_INET, SOCK_STREAM, 132),
    SOCKET(mptcp, AF_INET, SOCK_STREAM, 262),
    SOCKET(dccp, AF_INET, 6, 33),
    SOCKET(sock_diag, AF_NETLINK, SOCK_RAW, 4),
    SOCKET(xfrm, AF_NETLINK, SOCK_RAW, 6),
    SOCKET(audit, AF_NETLINK, SOCK_RAW, 9),
    SOCKET(netfilter, AF_NETLINK, SOCK_RAW, 12),
    SOCKET(netfilter_high_bits, AF_NETLINK, SOCK_RAW, 12 | HIGH_BITS),
    SOCKET(uevent, AF_NETLINK, SOCK_RAW, 15),
    SOCKET(generic_netlink, AF_NETLINK, SOCK_RAW, 16),
    SOCKET(packet, AF_PACKET, SOCK_RAW, 0x0300),
    SOCKET(packet_high_bits, AF_PACKET | HIGH_BITS, SOCK_RAW, 0x0300),
    SOCKET(key, 15, SOCK_RAW, 2),
    SOCKET(bluetooth, 31, SOCK_RAW, 1),
    SOCKET(rxrpc, 33, SOCK_DGRAM, 0),
    SOCKET(alg, 38, SOCK_SEQPACKET, 0),
    SOCKET(vsock, 40, SOCK_STREAM, 0),
    SOCKET(xdp, 44, SOCK_RAW, 0),
    TRY(socket_every_family),
    TRY(socket_every_netlink),
    TRY(socket_every_protocol),
    NUMBERED("socketpair_tipc", SYS_socketpair, 30, SOCK_SEQPACKET, 0, 0),
    TRY(tcp_ulp),
    TRY(udp_encap),
    TRY(attach_filter),
    TRY(attach_filter_high_bits),
    TRY(attach_reuseport_filter),
    TRY(attach_bpf),
    TRY(socket_mark),
    TRY(socket_buffer_force),
    TRY(iptables),
    TRY(xfrm_policy),
    TRY(transparent_proxy),
    TRY(tcp_repair),
    TRY(loopback_down),
    TRY(network_namespace_of_socket),
    TRY(route_new_link),
    TRY(route_traffic_control),
    TRY(route_namespace_id),
    TRY(abstract_socket_of_host),
    TRY(loopback_of_host),
    TRY(route_to_metadata),
    TRY(route_to_internet),
    TRY(route_to_internet6),
    TRY(other_interfaces),
};
ATTEMPTS(sockets);
