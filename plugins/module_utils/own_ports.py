"""The TCP ports on which the ranks of one deployment meet, and the packet filter that keeps everybody else from them.

Ray, and the rendezvous of torch, listen on every address of a node whatever address they are told, and both run what a
client sends them. So the node's own packet filter lets the other nodes in, by the interface of the rails, and drops
what else comes to these ports.
"""

from __future__ import annotations

from .intent import Intent

CHAIN = "SPARKWRIGHT"
JUMP = ("INPUT", "-j", CHAIN)

# How many ports, from the profile's master_port on, an executor takes on a node; see ray_plan.PORTS.
RAY_PORTS = 120
# Port of the roll call, unless the profile names another one.
ROLL_PORT = 29400
SPANS = {"ray": RAY_PORTS}


def rank_ports(intent: Intent) -> range:
    """The ports on which this node's rank is met by the others once it runs; none where it only meets them."""
    listens = {"ray": True, "mp": intent.is_head, "llamacpp": not intent.is_head}[intent.executor]
    first = intent.master_port
    return range(first, first + SPANS.get(intent.executor, 1)) if listens else range(first, first)


def own_ports(intent: Intent) -> list[range]:
    """All ports on which the others meet this node: the roll call on the head, and those of its rank."""
    roll = range(intent.roll_port, intent.roll_port + (1 if intent.is_head else 0))
    return [ports for ports in (roll, rank_ports(intent)) if ports]


def filter_rules(intent: Intent) -> list[str]:
    """The rules for IPv4, as `iptables -S` prints them; none where the node has no such ports."""
    wanted = [f"-p tcp -m tcp --dport {span(ports, ':')}" for ports in own_ports(intent)]
    if not wanted:
        return []
    peers = [f"-A {CHAIN} -s {address}/32 -i {intent.socket_netdev}" for address in intent.socket_peers.values()]
    return [
        f"-A {CHAIN} -i lo -j RETURN",
        *(f"{peer} {ports} -j RETURN" for ports in wanted for peer in peers),
        *(f"-A {CHAIN} {ports} -j DROP" for ports in wanted),
    ]


def filter_rules_v6(intent: Intent) -> list[str]:
    """The rules for IPv6, which no rank speaks: whoever comes is a stranger."""
    return [rule for rule in filter_rules(intent) if " -s " not in rule]


def span(ports: range, between: str = "-") -> str:
    """Ports that follow each other, in words."""
    return str(ports[0]) if len(ports) == 1 else f"{ports[0]}{between}{ports[-1]}"


def restore_text(rules: list[str]) -> str:
    """The input of `iptables-restore --noflush` that makes our chain hold these rules, in one step."""
    return "\n".join(["*filter", f":{CHAIN} - [0:0]", *rules, "COMMIT", ""])


def parse_rules(text: str) -> list[str]:
    """The rules of our chain from `iptables -S SPARKWRIGHT`, without the line that makes the chain."""
    return [line for line in text.splitlines() if line.startswith("-A ")]
