"""Secrets in what a run was asked to do are kept by the names of their variables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from ralphproof.base.errors import Refused
from ralphproof.base.redaction import find_environment_secrets, mask_text, replace_secrets, resolve_secrets

if TYPE_CHECKING:
    from ralphproof.base.value import Json

ENVIRON = {
    "API_KEY": "canary-1234-abcd",
    "HTTPS_PROXY": "http://me:password-in-a-url@proxy:3128",
    "HOME": "/home/me",
}
REQUEST: Json = {
    "request": {"prompt": ["use canary-1234-abcd", None], "plain": ["curl", "-u", "password-in-a-url"]},
    "flags": {"agent": {"command": "tool --key canary-1234-abcd --home /home/me"}, "maximumIterations": 3},
}


def masked(text: str) -> str:
    return mask_text(text, (*find_environment_secrets(ENVIRON), "only-in-settings"))


def test_secrets_come_back_and_are_never_written() -> None:
    kept = json.dumps(replace_secrets(REQUEST, ENVIRON, masked))
    assert "canary" not in kept
    assert "password-in" not in kept
    assert resolve_secrets(json.loads(kept), ENVIRON) == REQUEST


def test_a_key_that_changed_since_is_taken_as_it_now_is() -> None:
    kept = replace_secrets({"command": "tool canary-1234-abcd"}, ENVIRON, masked)
    assert resolve_secrets(kept, ENVIRON | {"API_KEY": "a-newer-key"}) == {"command": "tool a-newer-key"}


def test_a_variable_that_is_gone_is_named() -> None:
    kept = replace_secrets({"command": "tool canary-1234-abcd"}, ENVIRON, masked)
    with pytest.raises(Refused, match="API_KEY, which is not set now"):
        resolve_secrets(kept, {})


def test_what_no_variable_holds_is_masked() -> None:
    assert replace_secrets(["say only-in-settings"], ENVIRON, masked) == ["say ***"]
