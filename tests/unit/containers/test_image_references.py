"""References of images: which registry an engine asks for them."""

import pytest

from stateward.containers import registry_of


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("nginx", "docker.io"),
        ("library/nginx:1", "docker.io"),
        ("localhost/web:1", "localhost"),
        ("localhost:5000/web", "localhost:5000"),
        ("Registry/web", "Registry"),  # an engine takes a part with a capital letter for a host
        ("registry.example.com/shop/web@sha256:0", "registry.example.com"),
    ],
)
def test_the_registry_of_an_image_is_the_one_that_an_engine_asks(image: str, registry: str) -> None:
    assert registry_of(image) == registry
