"""The errors of the ovc domain: denials beyond the tables. Each is a 409, except those with the code `forbidden`."""

from stateward.engine import Denied, Refused


class NotNow(Refused):
    """The object is in transition: another action has to end first."""

    begins = "Cannot execute action at this time: "

    def __str__(self) -> str:
        return f"{self.begins}{super().__str__()}"


class RuleBroken(Denied):
    """A rule of the domain that a request breaks; its text is built from its facts."""

    def __init__(self, **facts: str | int) -> None:
        super().__init__(*facts.values())
        vars(self).update(facts)


class OtherAction(RuleBroken, code="other_action", retry=True):
    """The object is not in the state that the caller expected: another action was faster."""

    text = "Other action currently happening on {kind} {id}: it is {state}, not {status}"


class QueueOccupied(RuleBroken, code="one_waits", retry=True):
    """During a migration one request of a user can wait, and one waits already."""

    text = "Cannot execute action at this time: {kind} {id} is busy, and operation {op} waits already"


class QueueStopping(RuleBroken, code="queue_stopping", retry=True):
    """The queue is being stopped, and refuses requests until it is drained."""

    text = "Cannot execute action at this time: the queue of {kind} {id} is being stopped"


class NameTaken(RuleBroken, code="name_taken"):
    """The name is in use, perhaps by an object in the recycle bin."""

    text = "the name {name!r} is taken by {kind} {id}, which is {state}"


class ParentNotReady(RuleBroken, code="parent_not_ready"):
    """The state of the parent does not allow the action."""

    text = "{kind} {id} is {state}: it has to be {wanted}"


class ParentInBin(RuleBroken, code="parent_in_bin"):
    """The parent is in the recycle bin, and must be restored first."""

    text = "{kind} {id} is {state}: restore it first"


class HasRunning(RuleBroken, code="has_running"):
    """VMs of the object run; only an administrator stops them with it."""

    text = "{kind} {id} has VMs that run ({vms}): stop them first, or let an administrator do this"


class HasClones(RuleBroken, code="has_clones", retry=True):
    """Clones use the VM's disk as their base."""

    after = 3600.0
    text = "vm {id} has clones: {clones}"


class ImageInUse(RuleBroken, code="image_in_use", retry=True):
    """VMs use the image."""

    after = 3600.0
    text = "image {id} is used by {users} VMs"


class BootDisk(RuleBroken, code="boot_disk"):
    """A boot disk is created and removed with its VM only."""

    text = "disk {id} is the boot disk of vm {vm}: it comes and goes with it"


class TooManyDisks(RuleBroken, code="too_many_disks"):
    """The VM has as many disks as it may have."""

    text = "vm {id} has {most} disks already, which is the limit"


class OtherAccount(RuleBroken, code="forbidden"):
    """It belongs to another account."""

    text = "{kind} {id} belongs to another account than {other}"


class NodeDriverNotGranted(RuleBroken, code="forbidden"):
    """Only an administrator of all namespaces may register a node that runs programs on the server's host."""

    text = (
        "the driver {driver} runs programs on the server's own host: an administrator of all namespaces can register"
        " this node in namespace {ns}"
    )


class NotAttached(RuleBroken, code="not_attached"):
    """The disk is not one of the VM's."""

    text = "disk {disk} is not attached to vm {id}"


class ChangedWithVm(RuleBroken, code="on_its_vm"):
    """The action changes a disk together with its VM, and must be asked of the VM."""

    text = "disk {id} is changed together with its VM: ask for '{action} disk' of the VM"


class NoNode(RuleBroken, code="no_node", retry=True):
    """There is no enabled node for the VM or the firewall of a cloudspace."""

    text = "{kind} {id} needs a node, and none is ENABLED: an administrator must register or enable one first"


class NoOtherNode(NoNode):
    """There is no enabled node that the VM could move to."""

    text = "vm {id} cannot move: no other node is ENABLED"


class NoRoom(RuleBroken, code="no_room", retry=True):
    """The nodes are large enough for the VM, but other VMs have their memory."""

    text = "size: must be smaller for now: {size} needs {mib} MiB, and no node that is ENABLED has so much left"


class NodeIsInternal(RuleBroken, code="forbidden"):
    """Only administrators choose the node of a VM."""

    text = "only administrators choose the node of vm {id}"


class NodeNotReady(RuleBroken, code="node_not_ready", retry=True):
    """The node takes no VMs now."""

    text = "node {id} is {state}: it takes no VMs"


class LastNode(RuleBroken, code="last_node"):
    """The last node that is ENABLED cannot go."""

    text = "node {id} cannot be decommissioned: there is no other node that is ENABLED"


class AlreadyOnNode(RuleBroken, code="already_there"):
    """The VM is on the requested node already."""

    text = "vm {id} is on node {node} already"


class NotAtRest(RuleBroken, code="not_at_rest", retry=True):
    """The object has queued operations, so what its node shows may be from before or after them."""

    text = "{kind} {id} is being worked on: what its node shows now does not count"
