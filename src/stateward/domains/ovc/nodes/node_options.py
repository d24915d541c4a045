"""Options of a node, checked when it is registered, and again when a process opens it.

Drivers read their options when a node is first needed. A bad one would be accepted then, and the node would end in
ERROR a moment later. So they are checked by the same rules before anything is written.

None of the options names a program or a folder of the server's host. A stored spec that has one, from an earlier
version, is refused when the node is opened.
"""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from stateward.domains.ovc.model import NodeSpec
from stateward.drivers import ProviderRegion
from stateward.drivers.qemu.hardware import Hardware
from stateward.drivers.simulated.faults import CALM, with_options
from stateward.errors import BadInput, UnknownName
from stateward.validation_texts import describe_pattern, explain

WHOLE = describe_pattern(r"^[0-9]{1,15}$(?!\n)", "a whole number of at most 15 digits")
NUMBER = describe_pattern(r"^[0-9]{1,12}(\.[0-9]{1,6})?$(?!\n)", "a number such as 30 or 0.5")
NAMES = describe_pattern(r"^[ -~]{0,500}$(?!\n)", "at most 500 ASCII characters, without control characters")
Whole = Annotated[str, Meta(pattern=WHOLE)]
Number = Annotated[str, Meta(pattern=NUMBER)]
Names = Annotated[str, Meta(pattern=NAMES)]


class ProcessOptions(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Options of the driver `process`: how many seconds what has ended is kept, which images and sizes there are."""

    keep: Number | None = None
    images: Names | None = None
    specs: Names | None = None


class QemuOptions(ProcessOptions, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Options of the driver `qemu`: the board, and how many bytes a second a machine that leaves may use."""

    arch: str | None = None
    accel: str | None = None
    bandwidth: Whole | None = None


OPTION_FORMS: dict[str, type[Struct]] = {"process": ProcessOptions, "qemu": QemuOptions}


def check_options(spec: NodeSpec) -> None:
    """Refuse options that the node's driver would not take."""
    if form := OPTION_FORMS.get(spec.driver):
        for name, value in spec.options.items():
            if name not in form.__struct_fields__:
                raise BadInput(f"options.{name}", name, f"one of {', '.join(sorted(form.__struct_fields__))}")
            try:
                msgspec.convert({name: value}, form)
            except msgspec.ValidationError as error:
                raise BadInput(f"options.{name}", value, explain(error, form).allowed) from error
    try:
        if spec.driver == "simulated":
            with_options(CALM, spec.options)
        if spec.driver == "qemu":
            Hardware(ProviderRegion("ovc", spec.name, options=spec.options))
    except UnknownName as error:
        raise BadInput(f"options.{error.name}", error.name, f"one of {', '.join(sorted(error.known))}") from error
    except BadInput as error:
        raise BadInput(f"options.{error.field}", error.value, error.allowed) from error
