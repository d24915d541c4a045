"""Policies: the maximum duration of a lease, and the external service."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from stateward.config import load
from stateward.domains.leases.enforcement import PolicyQuestion
from stateward.domains.leases.errors import DeniedByPolicy
from stateward.domains.leases.model import Lease, LeaseHost
from stateward.domains.leases.settings import Settings
from stateward.errors import BadInput
from stateward.plugin.registry import installed
from tests.integration.domains.leases.conftest import ME, NS, LeaseHarness, Opening, at, hosts, thing
from tests.integration.domains.leases.policy_service import running_policy_service, was_notified
from tests.waiting import until


async def test_a_lease_may_not_be_longer_than_allowed_nor_grow_beyond_it(opening: Opening) -> None:
    async with opening(Settings(max_duration=3600.0)) as site:
        with pytest.raises(DeniedByPolicy, match="max duration"):
            await site.lease("long", thing("lamp"), start=60, end=4000)
        lease = await site.lease("short", thing("lamp"), start=60, end=1000)
        with pytest.raises(DeniedByPolicy):
            await site.plugin.leases.update(ME, lease.object.id, {"end_date": at(5000)})
        assert (await site.now(lease)).spec == lease.spec


async def test_some_projects_are_exempt(opening: Opening) -> None:
    async with opening(Settings(max_duration=60.0, max_duration_exempt=f"other,{NS}")) as site:
        await site.lease("long", thing("lamp"), start=60, end=4000)


async def test_another_service_is_asked_about_every_lease_and_told_of_its_end(opening: Opening) -> None:
    async with running_policy_service() as (policies, url), opening(Settings(check_url=url)) as site:
        lease = await site.lease("asked", thing("lamp"), start=0.2, end=3600)
        await site.until(lease, "ACTIVE")
        await site.plugin.leases.update(ME, lease.object.id, {"end_date": "now"})
        await site.until(lease, "TERMINATED")
        await until(lambda: was_notified(policies, 1))
        assert list(dict.fromkeys(path for path, _ in policies.asked)) == [
            "/check-create",
            "/check-update",
            "/on-end",
        ]


async def test_what_another_service_denies_is_not_made(opening: Opening) -> None:
    async with running_policy_service() as (policies, url), opening(Settings(check_url=url)) as site:
        policies.says = (
            b'HTTP/1.1 403 Forbidden\r\ncontent-length: 24\r\nconnection: close\r\n\r\n{"message": "no budget"}'
        )
        with pytest.raises(DeniedByPolicy, match="no budget"):
            await site.lease("poor", thing("lamp"))
        assert await site.plugin.leases.list(NS) == []


async def test_a_service_that_does_not_answer_in_time_has_not_said_yes(opening: Opening) -> None:
    async with (
        running_policy_service() as (policies, url),
        opening(Settings(check_url=url, check_timeout=0.1)) as site,
    ):
        policies.silent = True
        with pytest.raises(DeniedByPolicy, match="no answer"):
            await site.lease("ignored", thing("lamp"))


class CautiousFilter:
    """Denies every lease that would get the host `gpu`; `when_asked` is called with each question before the answer."""

    needs_hosts = True
    notifies = False

    def __init__(self, when_asked: Callable[[], Awaitable[object]]) -> None:
        self._when_asked = when_asked

    async def check(self, question: PolicyQuestion) -> None:
        names = {name for one in question.plan.values() for name in one}
        await self._when_asked()
        if "gpu" in names:
            raise DeniedByPolicy("cautious", "gpu is not for you")

    async def on_end(self, lease: Lease, hosts: Mapping[str, LeaseHost]) -> None:
        return


def ask(site: LeaseHarness, when_asked: Callable[[], Awaitable[object]]) -> None:
    """Let a site ask this filter and no other."""
    filters = site.plugin._ctx.filters
    filters._filters = [CautiousFilter(when_asked)]
    filters.needs_hosts = True


async def test_a_lease_gets_only_the_hosts_that_the_policies_were_asked_about(opening: Opening) -> None:
    async with opening() as site:
        await site.hosts("cpu", "gpu")
        ask(site, asyncio.Barrier(2).wait)
        answers = await asyncio.gather(
            *(site.lease(f"rival {one}", hosts(), start=60) for one in range(2)), return_exceptions=True
        )
        assert sorted(type(one).__name__ for one in answers) == ["DeniedByPolicy", "Lease"]
        assert [one.seen.booked for one in await site.plugin.leases.list(NS)] == [{"cpu"}]


@pytest.mark.parametrize("store_name", ["postgres"])
async def test_policies_are_asked_again_if_another_process_takes_the_host_meanwhile(opening: Opening) -> None:
    async with opening() as one, opening() as other:
        await one.hosts("cpu", "gpu")
        rivals = [lambda: other.lease("faster", hosts(), start=60)]

        async def overtake() -> None:
            if rivals:
                await rivals.pop()()

        ask(one, overtake)
        with pytest.raises(DeniedByPolicy):
            await one.lease("slower", hosts(), start=60)
        assert [found.spec.name for found in await one.plugin.leases.list(NS)] == ["faster"]


def test_settings_come_from_the_environment() -> None:
    environ = {"STATEWARD_LEASES_MAX_DURATION": "86400", "STATEWARD_LEASES_CHECK_URL": "http://judge"}
    found = load({}, environ, None, installed().sections).config.domains["leases"]
    assert (found.max_duration, found.check_url, found.before_end) == (86400.0, "http://judge", 3600.0)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("cleaning", "soon"),
        ("cleaning", "-60"),
        ("cleaning", "1_0"),
        ("before_end", "nan"),
        ("check_timeout", "0"),
        ("check_url", "http://[::1"),
        ("check_url", "http://host:port/"),
        ("check_url", "http://"),
        ("check_url", "ftp://judge"),
        ("check_url", "judge"),
        ("check_url", "http://judge/?x=1"),
        ("check_url", "http://ju dge/"),
        ("check_url", "http://judge\n/"),
        ("check_token", "a\nb"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_before_anything_starts(name: str, wrong: str) -> None:
    with pytest.raises(BadInput) as caught:
        load({}, {f"STATEWARD_LEASES_{name.upper()}": wrong}, None, installed().sections)
    assert caught.value.field == f"leases_{name} (environment)"
