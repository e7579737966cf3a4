"""The environment inside: what is on a list, and no key whatever it is called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.sandbox.ecosystems import ECOSYSTEMS, ecosystem_variables
from ralphproof.sandbox.plan import ALLOWED_VARIABLES, CERTIFICATE_VARIABLES, filter_environment

URL = "_".join(("INDEX", "URL"))
KEYS = (
    "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "GITHUB_TOKEN", "GH_TOKEN", "NPM_TOKEN", "NODE_AUTH_TOKEN", "npm_config__auth", "TWINE_PASSWORD",
    "UV_PUBLISH_TOKEN", *(f"{one}_{URL}" for one in ("PIP", "PIP_EXTRA", "UV")), "POETRY_HTTP_BASIC_X_PASSWORD",
    "CARGO_REGISTRY_TOKEN",
    "CARGO_REGISTRIES_X_TOKEN", "GOPROXY", "GOPRIVATE", "BUNDLE_RUBYGEMS__PKG__GITHUB__COM", "COMPOSER_AUTH",
    "HEX_API_KEY", "NUGET_API_KEY", "DATABASE_URL", "PGPASSWORD", "MYSQL_PWD", "VAULT_TOKEN", "KUBECONFIG",
    "GOOGLE_APPLICATION_CREDENTIALS", "SLACK_WEBHOOK", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "SSH_AUTH_SOCK",
    "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "DOCKER_HOST", "XDG_RUNTIME_DIR", "DISPLAY", "WAYLAND_DISPLAY",
    "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "PROMPT_COMMAND", "PYTHONSTARTUP", "PYTHONHOME", "NODE_OPTIONS",
    "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_DIR", "GIT_CONFIG_PARAMETERS",
    "RUSTC_WRAPPER", "RALPH_STATE_DIR", "RALPH_NOTIFY", "DYLD_INSERT_LIBRARIES",
)  # fmt: skip
EVERYTHING = (*ALLOWED_VARIABLES, *ecosystem_variables(ECOSYSTEMS, {}))


@pytest.mark.parametrize("name", KEYS)
def test_no_key_no_socket_and_no_other_program_comes_inside(name: str) -> None:
    assert filter_environment({name: "x", "PATH": "/bin"}, EVERYTHING) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "LANG", "LC_ALL", "LC_TIME", "TERM", "TZ", "CI", "RALPH_STORY_ID", *CERTIFICATE_VARIABLES]
)
def test_how_programs_work_stays(name: str) -> None:
    assert filter_environment({name: "x"}, ALLOWED_VARIABLES) == {name: "x"}


NAMES = st.text("ABC_", min_size=1, max_size=4)


@given(st.dictionaries(NAMES, st.text(max_size=3)), st.lists(st.builds(str.__add__, NAMES, st.sampled_from(["", "*"]))))
def test_what_stays_is_on_the_list_and_is_all_of_it(env: dict[str, str], keeps: list[str]) -> None:
    meant = {
        name: text
        for name, text in env.items()
        if any(name == keep or (keep.endswith("*") and name.startswith(keep[:-1])) for keep in keeps)
    }
    assert filter_environment(env, keeps) == meant


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("/opt/wheels", True),
        ("", True),
        ("https://me:secret@wheels.test/", False),
        ("/opt/wheels https://x.test", False),
    ],
)
def test_an_address_that_may_hold_a_login_does_not_stay(text: str, stays: bool) -> None:
    assert ("PIP_FIND_LINKS" in ecosystem_variables(ECOSYSTEMS, {"PIP_FIND_LINKS": text})) is stays
