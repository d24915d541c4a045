"""The errors of the ovc domain: denials beyond the tables. Each is a 409, except those with the code `forbidden`."""

from stateward.engine import Denied, Refused


class NotNow(Refused):
    """The object is in transition: another action has to end first."""

    begins = "Cannot execute action at this time: "

    def __str__(self) -> str:
        return f"{self.begins}{super().__str__()}"


class RuleBroken(Denied):
    """A rule of the domain that a request breaks; its text is built from its facts."""

    text = ""

    def __init__(self, **facts: str | int) -> None:
        super().__init__(*facts.values())
        vars(self).update(facts)

    def __str__(self) -> str:
        return self.text.format(**vars(self))


class OtherAction(RuleBroken):
    """The object is not in the state that the caller expected: another action was faster."""

    code = "other_action"
    retry = True
    text = "Other action currently happening on {kind} {id}: it is {state}, not {status}"


class QueueOccupied(RuleBroken):
    """During a migration one request of a user can wait, and one waits already."""

    code = "one_waits"
    retry = True
    text = "Cannot execute action at this time: {kind} {id} is busy, and operation {op} waits already"


class QueueStopping(RuleBroken):
    """The queue is being stopped, and refuses requests until it is drained."""

    code = "queue_stopping"
    retry = True
    text = "Cannot execute action at this time: the queue of {kind} {id} is being stopped"


class NameTaken(RuleBroken):
    """The name is in use, perhaps by an object in the recycle bin."""

    code = "name_taken"
    text = "the name {name!r} is taken by {kind} {id}, which is {state}"


class ParentNotReady(RuleBroken):
    """The state of the parent does not allow the action."""

    code = "parent_not_ready"
    text = "{kind} {id} is {state}: it has to be {wanted}"


class ParentInBin(RuleBroken):
    """The parent is in the recycle bin, and must be restored first."""

    code = "parent_in_bin"
    text = "{kind} {id} is {state}: restore it first"


class HasRunning(RuleBroken):
    """VMs of the object run; only an administrator stops them with it."""

    code = "has_running"
    text = "{kind} {id} has VMs that run ({vms}): stop them first, or let an administrator do this"


class HasClones(RuleBroken):
    """Clones use the VM's disk as their base."""

    code = "has_clones"
    retry = True
    after = 3600.0
    text = "vm {id} has clones: {clones}"


class ImageInUse(RuleBroken):
    """VMs use the image."""

    code = "image_in_use"
    retry = True
    after = 3600.0
    text = "image {id} is used by {users} VMs"


class BootDisk(RuleBroken):
    """A boot disk is created and removed with its VM only."""

    code = "boot_disk"
    text = "disk {id} is the boot disk of vm {vm}: it comes and goes with it"


class TooManyDisks(RuleBroken):
    """The VM has as many disks as it may have."""

    code = "too_many_disks"
    text = "vm {id} has {most} disks already, and may not have more"


class OtherAccount(RuleBroken):
    """It belongs to another account."""

    code = "forbidden"
    text = "{kind} {id} belongs to another account than {other}"


class NodeDriverNotGranted(RuleBroken):
    """Only an administrator of all namespaces may register a node that runs programs on the server's host."""

    code = "forbidden"
    text = (
        "the driver {driver} runs programs on the server's own host: an administrator of all namespaces can register"
        " this node in namespace {ns}"
    )


class NotAttached(RuleBroken):
    """The disk is not one of the VM's."""

    code = "not_attached"
    text = "disk {disk} is not attached to vm {id}"


class ChangedWithVm(RuleBroken):
    """The action changes a disk together with its VM, and must be asked of the VM."""

    code = "on_its_vm"
    text = "disk {id} is changed together with its VM: ask for '{action} disk' of the VM"


class NoNode(RuleBroken):
    """There is no enabled node for the VM."""

    code = "no_node"
    retry = True
    text = "there is no other node that is ENABLED: vm {id} has nowhere to go"


class NodeIsInternal(RuleBroken):
    """Only administrators choose the node of a VM."""

    code = "forbidden"
    text = "only administrators choose the node of vm {id}"


class NodeNotReady(RuleBroken):
    """The node takes no VMs now."""

    code = "node_not_ready"
    retry = True
    text = "node {id} is {state}: it takes no VMs"


class LastNode(RuleBroken):
    """The last node that is ENABLED cannot go."""

    code = "last_node"
    text = "node {id} cannot be decommissioned: there is no other node that is ENABLED"


class AlreadyOnNode(RuleBroken):
    """The VM is on the requested node already."""

    code = "already_there"
    text = "vm {id} is on node {node} already"


class NotAtRest(RuleBroken):
    """The object has queued operations, so what its node shows may be from before or after them."""

    code = "not_at_rest"
    retry = True
    text = "{kind} {id} is being worked on: what its node shows now does not count"
