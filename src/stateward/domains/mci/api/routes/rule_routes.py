"""Routes of the firewall rules of security groups: add some, remove some, or replace all.

A rule with several ranges of ports is compared range by range, so that one of them can be removed.
"""

from collections.abc import Callable

from litestar import delete, post, put
from msgspec import Struct

from stateward.domains.mci.api.context import TumblebugRequest, adds_object_state, resource_in_path
from stateward.domains.mci.api.lenient_json import Fields
from stateward.domains.mci.api.resource_bodies import describe_rule, parse_new_rules, parse_rules
from stateward.domains.mci.api.resource_views import ResourceView, resource_view
from stateward.domains.mci.api.routes.resource_routes import wait_done
from stateward.domains.mci.api.tumblebug_params import ACT, Name, Ns
from stateward.domains.mci.model import FirewallRule, single_rules
from stateward.domains.mci.resource_service import RuleChange
from stateward.domains.mci.resource_usage import users_of
from stateward.errors import BadInput, UnknownName
from stateward.plugin.route_options import reads
from stateward.store.records import Object

PATH = "/ns/{ns:str}/resources/securityGroup/{name:str}"
SOME_RULES = {"firewallRules": [{"Protocol": "tcp", "Ports": "443", "Direction": "inbound", "CIDR": "10.0.0.0/8"}]}
"""An example of a request body, for the API description."""

Rules = tuple[FirewallRule, ...]


class RulesReply(Struct, frozen=True):
    """A security group before and after a change of its rules."""

    id: str
    name: str
    success: bool
    message: str
    previous: ResourceView
    updated: ResourceView


@post(f"{PATH}/rules", opt=ACT | reads(SOME_RULES), status_code=200)
@adds_object_state(resource_in_path("securityGroup"))
async def add_rules(request: TumblebugRequest, ns: Ns, name: Name) -> RulesReply:
    """Add rules to a security group; rules that it has are skipped."""
    new = await _rules(request, parse_new_rules)
    return await _change(request, ns, name, lambda present: single_rules((*present, *new)))


@delete(f"{PATH}/rules", opt=ACT | reads(SOME_RULES), status_code=200)
@adds_object_state(resource_in_path("securityGroup"))
async def remove_rules(request: TumblebugRequest, ns: Ns, name: Name) -> RulesReply:
    """Remove rules from a security group: all of the body, or none if it does not have one of them."""
    removed = await _rules(request, parse_rules)

    def without(present: Rules) -> Rules:
        single = single_rules(present)
        for rule in removed:
            if rule not in single:
                raise UnknownName(f"rule of securityGroup {name!r}", describe_rule(rule), map(describe_rule, single))
        return tuple(rule for rule in single if rule not in removed)

    return await _change(request, ns, name, without)


@put(PATH, opt=ACT | reads(SOME_RULES))
@adds_object_state(resource_in_path("securityGroup"))
async def replace_rules(request: TumblebugRequest, ns: Ns, name: Name) -> RulesReply:
    """Replace all rules of a security group; an empty list closes it."""
    new = await _rules(request, parse_new_rules, can_be_empty=True)
    return await _change(request, ns, name, lambda _: new)


async def _rules(request: TumblebugRequest, parse: Callable[[Fields], Rules], *, can_be_empty: bool = False) -> Rules:
    body = await request.fields()
    rules = parse(body)
    if body.raw("firewallRules") is None or not (rules or can_be_empty):
        raise BadInput("firewallRules", body.raw("firewallRules"), "given: a list of rules")
    return rules


async def _change(request: TumblebugRequest, ns: str, name: str, change: RuleChange) -> RulesReply:
    before, operation = await request.service.change_rules(ns, name, change, request.caller)
    text = f"The securityGroup {name} has these rules already"
    if operation is not None:
        is_over = await wait_done(request, operation, f"change of the rules of securityGroup {name!r}")
        text = f"The rules of securityGroup {name} {'have been' if is_over else 'are being'} changed"
    after = await request.service.resource(ns, "securityGroup", name)
    previous, updated = await _views(request, before, after)
    return RulesReply(name, name, True, text, previous, updated)


async def _views(request: TumblebugRequest, *groups: Object) -> list[ResourceView]:
    users = await users_of(request.service.engine.store.reader, groups[0])
    return [resource_view("securityGroup", group, users) for group in groups]


ROUTES = (add_rules, remove_rules, replace_rules)
