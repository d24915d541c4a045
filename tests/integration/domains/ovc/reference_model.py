"""A reference model of the domain: the states of all objects after each accepted action.

It knows nothing of queues, operations or time: what is accepted is done. It is written from the design, not from the
code that is tested against it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

TABLE = {
    "vm": {
        "deploy": ("VIRTUAL ERROR", "RUNNING"), "pause": ("RUNNING", "PAUSED"), "resume": ("PAUSED", "RUNNING"),
        "start": ("HALTED", "RUNNING"), "stop": ("RUNNING PAUSED", "HALTED"), "reboot": ("RUNNING PAUSED", "RUNNING"),
        "reset": ("RUNNING", "RUNNING"), "add disk": ("RUNNING PAUSED HALTED", ""),
        "attach disk": ("RUNNING PAUSED HALTED", ""), "detach disk": ("RUNNING PAUSED HALTED", ""),
        "delete": ("RUNNING PAUSED HALTED", "DELETED"), "restore": ("DELETED", "HALTED"),
        "destroy": ("VIRTUAL RUNNING PAUSED HALTED ERROR DELETED", "DESTROYED"),
        "migrate": ("RUNNING PAUSED HALTED", ""),
    },
    "cloudspace": {
        "disable": ("DEPLOYED", "DISABLED"), "enable": ("DISABLED", "DEPLOYED"), "pause": ("DEPLOYED", "PAUSED"),
        "resume": ("PAUSED", "DEPLOYED"), "reset": ("DEPLOYED PAUSED", "DEPLOYED"),
        "delete": ("DEPLOYED DISABLED PAUSED", "DELETED"), "restore": ("DELETED", "DEPLOYED"),
        "destroy": ("VIRTUAL DEPLOYED DISABLED PAUSED ERROR DELETED", "DESTROYED"),
    },
    "account": {
        "disable": ("CONFIRMED", "DISABLED"), "enable": ("DISABLED", "CONFIRMED"),
        "delete": ("CONFIRMED DISABLED", "DELETED"), "restore": ("DELETED", "CONFIRMED"),
        "destroy": ("CONFIRMED DISABLED ERROR DELETED", "DESTROYED"),
    },
    "disk": {
        "delete": ("CREATED ASSIGNED", "DELETED"), "restore": ("DELETED TOBEDELETED", "CREATED"),
        "destroy": ("MODELED CREATED ASSIGNED ERROR DELETED TOBEDELETED", "DESTROYED"),
    },
    "image": {
        "disable": ("CREATED", "DISABLED"), "enable": ("DISABLED", "CREATED"),
        "delete": ("CREATED DISABLED", "DELETED"), "restore": ("DELETED", "CREATED"),
        "destroy": ("VIRTUAL CREATED DISABLED ERROR DELETED", "DESTROYED"),
    },
}  # fmt: skip
FOR_ADMINS = {("cloudspace", "pause"), ("cloudspace", "resume"), ("cloudspace", "reset"), ("vm", "migrate")}
DONE_STATES = {"delete": ("DELETED", "TOBEDELETED", "DESTROYED"), "destroy": ("DESTROYED",)}
RUNS = ("RUNNING", "PAUSED")
BIN = ("DELETED", "TOBEDELETED", "DESTROYED")
MAX_DISKS = 25


@dataclass
class Thing:
    """An object, and the objects that it depends on."""

    kind: str
    state: str
    parent: str = ""
    account: str = ""
    image: str = ""
    clone_of: str = ""
    vm: str = ""
    boot: bool = False
    along: str = ""


class No(Exception):
    """The action is refused."""


@dataclass
class Model:
    """All objects by their ids."""

    things: dict[str, Thing] = field(default_factory=dict)

    def states(self) -> dict[str, str]:
        """Return the states of all objects."""
        return {id_: one.state for id_, one in self.things.items()}

    def below(self, parent: str, *kinds: str) -> Iterator[tuple[str, Thing]]:
        """Yield the children of an object."""
        for id_, one in list(self.things.items()):
            if one.parent == parent and (not kinds or one.kind in kinds):
                yield id_, one

    def disks(self, vm: str) -> Iterator[tuple[str, Thing]]:
        """Yield the disks of a VM that are not destroyed."""
        for id_, one in list(self.things.items()):
            if one.vm == vm and one.state != "DESTROYED":
                yield id_, one

    def clones(self, vm: str) -> list[Thing]:
        """Return the clones of a VM that are not destroyed."""
        return [one for one in self.things.values() if one.clone_of == vm and one.state != "DESTROYED"]

    # --- asking ------------------------------------------------------------------------------------------------------

    def ask(self, id_: str, action: str, actor: str, disk: str = "") -> bool:
        """Run an action as an actor; returns whether it changed anything, and raises if it is refused."""
        thing = self.things[id_]
        sources, target = TABLE[thing.kind].get(action, ("", ""))
        if (thing.kind, action) in FOR_ADMINS and actor != "admin":
            raise No
        if thing.state not in sources.split():
            if thing.state in DONE_STATES.get(action, ()):
                return False
            raise No
        getattr(self, f"_{thing.kind}")(id_, thing, action, actor, disk)
        if action in ("delete", "destroy", "restore"):
            self._go(id_, thing, action)
        elif target:
            thing.state = target
        return True

    def _vm(self, id_: str, vm: Thing, action: str, actor: str, disk: str) -> None:
        box, account = self.things[vm.parent], self.things[vm.account]
        if action in ("start", "deploy") and (box.state, account.state) != ("DEPLOYED", "CONFIRMED"):
            raise No
        more = ("resume", "reboot", "reset", "add disk", "attach disk")
        if action in more and (box.state not in ("DEPLOYED", "PAUSED") or account.state != "CONFIRMED"):
            raise No
        if action == "restore" and (box.state in BIN or account.state in BIN):
            raise No
        if action == "delete" and any(one.state != "DELETED" for one in self.clones(id_)):
            raise No
        if action == "destroy" and self.clones(id_):
            raise No
        if action in ("attach disk", "detach disk"):
            self._plug(id_, vm, action, disk)

    def _plug(self, vm: str, machine: Thing, action: str, id_: str) -> None:
        disk = self.things[id_]
        full = len(list(self.disks(vm))) >= MAX_DISKS
        if action == "attach disk":
            if disk.boot or full or disk.state != "CREATED" or disk.account != machine.account:
                raise No
            disk.state, disk.vm, disk.parent = "ASSIGNED", vm, vm
        else:
            if disk.boot or disk.vm != vm or disk.state != "ASSIGNED":
                raise No
            disk.state, disk.vm, disk.parent = "CREATED", "", disk.account

    def _disk(self, _id: str, disk: Thing, action: str, _actor: str, _disk: str) -> None:
        if disk.boot and action in ("delete", "destroy"):
            raise No
        if action == "restore" and self.things[disk.vm or disk.account].state in BIN:
            raise No

    def _cloudspace(self, id_: str, box: Thing, action: str, actor: str, _disk: str) -> None:
        account = self.things[box.account].state
        if action in ("enable", "restore", "resume", "reset") and account != "CONFIRMED":
            raise No
        if action in ("delete", "destroy") and actor == "user" and self._runs_below(id_):
            raise No

    def _account(self, id_: str, _account: Thing, action: str, actor: str, _disk: str) -> None:
        boxes = [box for box, _ in self.below(id_, "cloudspace")]
        if action in ("delete", "destroy") and actor == "user" and any(self._runs_below(box) for box in boxes):
            raise No

    def _image(self, id_: str, image: Thing, action: str, _actor: str, _disk: str) -> None:
        used = any(one.image == id_ and one.state != "DESTROYED" for one in self.things.values())
        account = self.things[image.account].state
        if (action == "destroy" and used) or (action == "restore" and account in BIN):
            raise No
        if action == "enable" and account != "CONFIRMED":
            raise No

    def _runs_below(self, box: str) -> bool:
        return any(vm.state in RUNS for _, vm in self.below(box, "vm"))

    # --- going and coming back ---------------------------------------------------------------------------------------

    def _go(self, id_: str, thing: Thing, action: str, along: str = "") -> None:
        """Delete, restore or destroy an object, with its children."""
        children = [*self.below(id_, "vm", "cloudspace", "image"), *self._disks_below(id_, thing)]
        was = thing.state
        thing.state = self._gone_to(thing, action)
        for child, one in children:
            if action == "delete" and one.state in TABLE[one.kind]["delete"][0].split():
                self._go(child, one, "delete", along=id_)
            elif action == "restore" and one.state in BIN[:2] and one.along == id_:
                self._go(child, one, "restore")
            elif action == "destroy" and one.state != "DESTROYED":
                self._go(child, one, "destroy")
        if action != "delete" or was not in BIN:
            thing.along = along

    def _disks_below(self, id_: str, thing: Thing) -> list[tuple[str, Thing]]:
        return list(self.disks(id_)) if thing.kind == "vm" else [*self.below(id_, "disk")]

    def _gone_to(self, thing: Thing, action: str) -> str:
        if thing.kind == "disk" and action != "destroy" and thing.vm:
            return "TOBEDELETED" if action == "delete" else "ASSIGNED"
        return TABLE[thing.kind][action][1]
