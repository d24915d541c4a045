"""Routes of the settings of Tumblebug's own server, under `/config`.

Scripts that set up Tumblebug store the addresses of its helpers here (`TB_SPIDER_REST_URL`). This server has no such
helpers: a setting is stored and shown, and steers nothing. A value that is a secret is refused, because settings are
shown in full.
"""

from litestar import delete, get, post
from msgspec import Struct

from stateward.domains.mci.api.context import TumblebugRequest
from stateward.domains.mci.api.operation_replies import OperationReply
from stateward.domains.mci.api.request_log import URL_WITH_PASSWORD, is_secret_name
from stateward.domains.mci.api.tumblebug_params import GOVERN_ALL_WITH_MESSAGES, Name, check_record_name
from stateward.domains.mci.model import TumblebugSetting
from stateward.errors import BadInput, UnknownName
from stateward.naming import check_text
from stateward.plugin.route_options import reads

A_SETTING = {"name": "TB_SPIDER_REST_URL", "value": "http://localhost:1024/spider"}
MAX_SETTINGS = 200
MAX_VALUE_CHARS = 1000
STEERS_NOTHING = "stored and shown; it steers nothing on this server"


class SettingView(Struct, frozen=True, omit_defaults=True):
    """A setting; a response to its change says that it steers nothing."""

    id: str
    name: str
    value: str
    message: str = ""


def setting_view(setting: TumblebugSetting, message: str = "") -> SettingView:
    """Return the view of a setting."""
    return SettingView(setting.name, setting.name, setting.value, message)


async def find_setting(request: TumblebugRequest, name: str) -> TumblebugSetting:
    """Return a stored setting, or raise."""
    stored = {setting.name: setting for setting in await request.service.settings()}
    if name not in stored:
        raise UnknownName("setting", name, stored)
    return stored[name]


def parse_setting(name: str, value: str) -> TumblebugSetting:
    """Return a setting; refuses names and values of secrets."""
    check_record_name("name", name)
    if is_secret_name(name):
        raise BadInput("name", name, "the name of a setting that is no secret: credentials are not stored here")
    if URL_WITH_PASSWORD.search(value):
        raise BadInput("value", None, "an address without a password: credentials are not stored here")
    return TumblebugSetting(name, check_text("value", value, 0, MAX_VALUE_CHARS))


@get("/config", opt=GOVERN_ALL_WITH_MESSAGES)
async def list_settings(request: TumblebugRequest) -> dict[str, list[SettingView]]:
    """Return the stored settings."""
    return {"config": [setting_view(setting) for setting in await request.service.settings()]}


@post("/config", opt=GOVERN_ALL_WITH_MESSAGES | reads(A_SETTING), status_code=200)
async def store_setting(request: TumblebugRequest) -> SettingView:
    """Store a setting; it steers nothing."""
    body = await request.fields()
    setting = parse_setting(body.text("name").strip(), body.text("value"))
    others = {other.name for other in await request.service.settings()} - {setting.name}
    if len(others) >= MAX_SETTINGS:
        raise BadInput("name", setting.name, f"one of the {MAX_SETTINGS} stored settings: no further one can be stored")
    await request.service.store_setting(setting, request.caller)
    return setting_view(setting, STEERS_NOTHING)


@get("/config/{name:str}", opt=GOVERN_ALL_WITH_MESSAGES)
async def get_setting(request: TumblebugRequest, name: Name) -> SettingView:
    """Return a stored setting."""
    return setting_view(await find_setting(request, name))


@delete("/config/{name:str}", opt=GOVERN_ALL_WITH_MESSAGES, status_code=200)
async def reset_setting(request: TumblebugRequest, name: Name) -> OperationReply:
    """Remove a setting, if it is stored."""
    await request.service.remove_setting(name, request.caller)
    return OperationReply(f"The config {name} is not stored any more")


@delete("/config", opt=GOVERN_ALL_WITH_MESSAGES, status_code=200)
async def reset_settings(request: TumblebugRequest) -> OperationReply:
    """Remove all settings."""
    for setting in await request.service.settings():
        await request.service.remove_setting(setting.name, request.caller)
    return OperationReply("No config is stored any more")


ROUTES = (list_settings, store_setting, get_setting, reset_setting, reset_settings)
