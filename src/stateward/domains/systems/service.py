"""The actions on systems, each as one request with the locks that it needs.

A deploy changes its path and everything below it: X on the path, and IX on every ancestor. A teardown and a delete
change the whole system: X on the root. A request that cannot get its locks is refused at once and names every blocker,
or waits in a fair queue if the caller says so.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from stateward.domains.systems.addresses import MaySee, check_free_addresses
from stateward.domains.systems.backends.backend_fields import check_backend_fields
from stateward.domains.systems.change_planner import find_undoable
from stateward.domains.systems.definition import Tree
from stateward.domains.systems.errors import DeletionLocked, NothingToRollBack
from stateward.domains.systems.guards import FORCE, WAIT, exclusive_lock
from stateward.domains.systems.lifecycle import DEPLOY, NODEPOOL, OPEN_DEPLOY, SYSTEM, TEARDOWN
from stateward.domains.systems.model import (
    ChangeSeen,
    ChangeSpec,
    DesiredTree,
    SystemSpec,
    seen_of,
    spec_of,
    system_spec,
)
from stateward.domains.systems.object_ids import change_id, checked_name, checked_path, from_key, pool_id, secret_name
from stateward.domains.systems.secrets.secret_actions import list_secrets
from stateward.engine import Accepted, Engine, Locked, NotFound
from stateward.engine.accept.idempotency import bare_key, was_created_by
from stateward.errors import BadInput, UnknownValue
from stateward.lifecycle import USER
from stateward.locks.paths import ROOT, Path
from stateward.naming import new_id
from stateward.store.filters import Page, Selector
from stateward.store.records import Key, Object

CheckFolders = Callable[[Object, DesiredTree], Awaitable[None]]
"""Refuses folders of a definition that instances of a system could not use; only a process with its backend can."""


class SystemActions:
    """The actions on the systems of one namespace, on behalf of one caller."""

    def __init__(
        self, engine: Engine, ns: str, who: str = "", actor: str = USER, may_see: MaySee | None = None
    ) -> None:
        self._engine, self._ns, self._who, self._actor = engine, ns, who, actor
        self._may_see: MaySee = may_see or ns.__eq__

    async def create(self, system: str, backend: str, key: str | None = None) -> Accepted:
        """Create a system."""
        checked_name("name", system)
        return await self._engine.create(
            self._ns, system, SYSTEM.kind, spec=SystemSpec(backend), who=self._who, actor=self._actor, key=key
        )

    async def retry(self, system: str, key: str | None = None) -> Accepted:
        """Initialise a failed system again."""
        return await self._engine.act(
            self._ns, checked_name("system", system), "retry", who=self._who, actor=self._actor, key=key
        )

    async def deploy(
        self,
        system: str,
        path: str,
        tree: Tree,
        wait: float | None = None,
        key: str | None = None,
        check_folders: CheckFolders | None = None,
    ) -> Accepted:
        """Deploy a definition at a path; `wait` is how many seconds it may wait for its lock."""
        return await self.deploy_tree(system, path, rooted_tree(path, tree), wait, key, check_folders)

    async def deploy_tree(
        self,
        system: str,
        path: str,
        wanted: DesiredTree,
        wait: float | None = None,
        key: str | None = None,
        check_folders: CheckFolders | None = None,
    ) -> Accepted:
        """Deploy a definition whose paths are those in the system; see `deploy`."""
        record = await self._engine.store.reader.object(Key(self._ns, checked_name("system", system)))
        if record is not None and record.kind == SYSTEM.kind:
            check_backend_fields(system_spec(record).backend, wanted.programs, wanted.field_of)
            if check_folders is not None:
                await check_folders(record, wanted)
        await self._check_pools(system, wanted)
        return await self._deploy(system, ChangeSpec(str(checked_path(path)), wanted), wait, key)

    async def check_first_deploy(self, system: str, backend: str, wanted: DesiredTree) -> None:
        """Raise if a definition cannot be deployed to a system to be created; its deploy checks it again."""
        check_backend_fields(backend, wanted.programs, wanted.field_of)
        await self._check_pools(system, wanted)
        await self._check_secrets(wanted)

    async def _check_pools(self, system: str, wanted: DesiredTree) -> None:
        """Raise if a service is to run on a node pool that is neither defined nor there; the deploy checks it again."""
        needed = {path: program.node_pool for path, program in wanted.programs.items() if program.node_pool is not None}
        if not needed:
            return
        known = set(wanted.pools or ())
        if wanted.pools is None:
            chosen = Selector(self._ns, NODEPOOL.kind, system)
            stored = await self._engine.store.reader.list_objects(chosen, Page(None, 10_000))
            known = {node_pool.id.removeprefix(pool_id(system, "")) for node_pool in stored}
        for path, pool in needed.items():
            if pool not in known:
                raise UnknownValue(f"{wanted.field_of(path)}.node_pool", "node pool", pool, sorted(known))

    async def _check_secrets(self, wanted: DesiredTree) -> None:
        """Raise if a service refers to a secret that does not exist; the guard of the deploy checks it again."""
        needed = wanted.secrets()
        if needed:
            known = [secret_name(secret.id) for secret in await list_secrets(self._engine, self._ns)]
            for name in sorted(needed.keys() - set(known)):
                raise UnknownValue(needed[name], "secret", name, known)

    async def _deploy(self, system: str, change: ChangeSpec, wait: float | None, key: str | None) -> Accepted:
        await self._check_secrets(change.picture)
        record = await self._engine.store.reader.object(Key(self._ns, system))
        if record is None or record.kind != SYSTEM.kind:
            return await self._create_change(DEPLOY.kind, "deploy", system, change, wait, key)
        check = partial(check_free_addresses, self._engine.store.reader, record, change, self._may_see)
        await check()
        try:
            return await self._create_change(DEPLOY.kind, "deploy", system, change, wait, key)
        except BadInput:
            await check()  # another deploy was faster: the guard does not know whether the caller may see it
            raise

    async def _create_change(
        self, kind: str, action: str, system: str, change: ChangeSpec | None, wait: float | None, key: str | None
    ) -> Accepted:
        """Create a deploy, or a teardown of the whole system, under the exclusive lock of its path."""
        return await self._engine.create(
            self._ns,
            await self._change_id(checked_name("system", system), key),
            kind,
            action,
            spec=change,
            labels=None if change is None else {"path": change.path},
            parent=system,
            args={} if wait is None else {WAIT: wait},
            tree=system,
            locks=exclusive_lock("/" if change is None else change.path),
            wait=wait is not None,
            who=self._who,
            actor=self._actor,
            key=key,
        )

    async def _change_id(self, system: str, key: str | None) -> str:
        """Return the id of a new deploy or teardown; the same idempotency key gives the same id."""
        if key is None:
            return change_id(system, new_id())
        mine, before = (change_id(system, from_key(variant)) for variant in (key, bare_key(key)))
        former = before != mine and await was_created_by(self._engine.store.reader, Key(self._ns, before), self._who)
        return before if former else mine

    async def rollback(
        self, system: str, path: str | None, deploy: str | None, wait: float | None = None, key: str | None = None
    ) -> Accepted:
        """Roll back a deploy: the named one, or the last one that succeeded."""
        wanted = None if path is None else str(checked_path(path))
        undoable = find_undoable(await self.deploys(system), wanted, deploy)
        change = None if undoable is None else spec_of(undoable, ChangeSpec)
        before = None if undoable is None else seen_of(undoable, ChangeSeen).before
        if undoable is None or change is None or before is None:
            raise NothingToRollBack(system, wanted)
        picture = replace(before, assigned_ports={})  # they are chosen again: others may have them now
        undo = ChangeSpec(change.path, picture, undoable.id, undoes_last=deploy is None)
        return await self._deploy(system, undo, wait, key)

    async def deploys(self, system: str) -> list[Object]:
        """Return the deploys of a system in its present life, newest first."""
        record = await self._engine.record(self._ns, system)
        chosen = Selector(self._ns, DEPLOY.kind, system)
        listed = await self._engine.store.reader.list_objects(chosen, Page(None, 10_000))
        return sorted(
            (deploy for deploy in listed if deploy.created >= record.created),
            key=lambda deploy: deploy.created,
            reverse=True,
        )

    async def open_deploys(self, system: str) -> list[Object]:
        """Return the deploys of a system that wait or are under way, oldest first."""
        chosen = Selector(self._ns, DEPLOY.kind, system, tuple(state.word for state in OPEN_DEPLOY))
        deploys = await self._engine.store.reader.list_objects(chosen, Page(None, 10_000))
        return sorted(deploys, key=lambda deploy: deploy.created)

    async def last_progress(self, change: Object) -> str | None:
        """Return the last line of progress of a change that is under way."""
        lines = [] if change.op is None else await self._engine.store.reader.progress_of(Key(self._ns, change.op), 0)
        return lines[-1].text if lines else None

    async def cancel(self, system: str, deploy: str) -> Accepted:
        """Cancel a deploy: a waiting one ends at once, a started one restores the former definition."""
        record = await self._engine.record(self._ns, deploy)
        if record.kind != DEPLOY.kind or record.parent != system:
            raise NotFound(self._ns, deploy)
        return await self._engine.act(self._ns, deploy, "cancel", who=self._who, actor=self._actor)

    async def teardown(self, system: str, wait: float | None = None, key: str | None = None) -> Accepted:
        """Stop all services of a system; the system stays."""
        return await self._create_change(TEARDOWN.kind, "teardown", system, None, wait, key)

    async def delete(self, system: str, *, force: bool = False) -> Accepted:
        """Delete a system with everything in it; with force, cancel the blocking deploys and wait for them."""
        how: dict[str, Any] = {"who": self._who, "actor": self._actor, "args": {FORCE: True} if force else None}
        locks = exclusive_lock("/")
        try:
            return await self._engine.act(self._ns, system, "delete", tree=system, locks=locks, wait=force, **how)
        except Locked as error:
            raise DeletionLocked(error.tree, error.lock, error.blockers) from error

    async def system(self, system: str) -> Object:
        """Return a system, or raise."""
        record = await self._engine.store.reader.object(Key(self._ns, system))
        if record is None or record.removed or record.kind != SYSTEM.kind:
            raise NotFound(self._ns, system)
        return record


def require_parts(tree: Tree) -> None:
    """Refuse a definition without services and jobs: a template that went wrong would remove everything."""
    if not tree.services and not tree.jobs:
        allowed = "a service or a job at least; to remove all of them, use a teardown, or allow_empty (--allow-empty)"
        raise BadInput("services", None, allowed)


def rooted_tree(path: str, tree: Tree) -> DesiredTree:
    """Return a definition that is deployed at a path with paths from the root of the system (pure)."""
    top = checked_path(path)
    if top == ROOT and ("/" in tree.services or "/" in tree.jobs):
        raise BadInput("path", "/", "a path for a service or a job: the root of a system is a group")
    services = {str(Path((*top, *checked_path(path)))): service for path, service in tree.services.items()}
    jobs = {str(Path((*top, *checked_path(path)))): job for path, job in tree.jobs.items()}
    for path in (*services, *jobs):
        checked_path(path)
    if tree.pools is not None and top != ROOT:
        raise BadInput("path", str(top), "/, where node pools are defined: they belong to the whole system")
    pools = {} if tree.pools is None and top == ROOT else tree.pools
    return DesiredTree(services, None if pools is None else dict(pools), jobs)
