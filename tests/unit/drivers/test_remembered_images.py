"""Images that were found by name are looked up again after a while, and none is kept forever."""

from stateward.drivers.cloud.images import IMAGE_LIFETIME_S, RememberedImages


def test_an_image_is_remembered_for_an_hour() -> None:
    now = 0.0
    found = RememberedImages[str](lambda: now)
    found.put("ubuntu", "ami-1")
    now = IMAGE_LIFETIME_S - 1
    assert found.get("ubuntu") == "ami-1"
    now = IMAGE_LIFETIME_S
    assert found.get("ubuntu") is None
    found.put("debian", "ami-2")
    assert found._found.keys() == {"debian"}
