from __future__ import annotations

import pytest

from ralphproof.reports.addresses import needs_apprise, notify_target_problem, redact_notify_target
from ralphproof.reports.deliver_notifications import apprise_services, webhook_service

EVENT = {"title": "t", "message": "m", "status": "COMPLETED", "event": "run.ended"}


@pytest.mark.parametrize(
    ("target", "apprise", "told"),
    [
        ("desktop", True, "desktop"),
        ("https://user:secret@hooks.example.org:8443/T0KEN?key=secret", True, "https://hooks.example.org"),
        ("HTTP://[::1]:80/T0KEN", True, "http://::1"),
        ("slack://T0KENA/T0KENB/T0KENC", True, "slack://…"),
        ("tgram://T0KEN", True, "tgram://…"),
        ("mailto://user:secret@example.org", True, "mailto://…"),
        ("notify-send done", False, "notify-send"),
        ("./bin/tell --token secret", False, "tell"),
        ("'/opt/my tools/tell' secret", False, "tell"),
        ("curl -H 'Authorization: secret' -d @- https://example.org/T0KEN", False, "curl"),
    ],
)
def test_a_target_that_may_work_is_shown_without_its_secrets(target: str, apprise: bool, told: str) -> None:
    assert notify_target_problem(target) == ""
    assert needs_apprise([target]) is apprise
    assert redact_notify_target(target) == told


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("say 'done", "has a quote or a backslash that nothing follows"),
        ("say done\\", "has a quote or a backslash that nothing follows"),
        ("'' done", "names no program"),
        ("say\ndone", "holds a control character"),
        ("say \x1b[31m", "holds a control character"),
        ("mailto:somebody@example.org", "looks like an address that lacks its ://"),
        ("https:/example.org/hook", "looks like an address that lacks its ://"),
        ("https://", "names no host, or a port that there is not"),
        ("https:///hook", "names no host, or a port that there is not"),
        ("http://example.org:port/hook", "names no host, or a port that there is not"),
        ("http://example.org:99999/hook", "names no host, or a port that there is not"),
        ("http://[::1/hook", "names no host, or a port that there is not"),
        ("https://example.org/a hook", "holds a space"),
    ],
)
def test_what_cannot_work_is_told_beforehand(target: str, problem: str) -> None:
    assert notify_target_problem(target) == problem


def test_commands_alone_need_no_apprise() -> None:
    assert not needs_apprise([])
    assert not needs_apprise(["say done", "./tell"])
    assert needs_apprise(["say done", "desktop"])


@pytest.mark.parametrize(
    ("platform", "ways"),
    [
        ("linux", ("dbus://", "glib://", "gnome://")),
        ("freebsd14", ("dbus://", "glib://", "gnome://")),
        ("darwin", ("macosx://",)),
        ("win32", ("windows://",)),
    ],
)
def test_the_desktop_is_the_platforms_own(platform: str, ways: tuple[str, ...]) -> None:
    assert apprise_services("desktop", EVENT, platform) == ways


def test_an_address_that_apprise_knows_is_left_as_it_is() -> None:
    assert apprise_services("slack://A/B/C?footer=no", EVENT, "linux") == ("slack://A/B/C?footer=no",)


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("http://example.org", {"schema": "json", "host": "example.org", "port": None, "fullpath": "/"}),
        ("https://example.org/a/b?x=1#f", {"schema": "jsons", "host": "example.org", "fullpath": "/a/b?x=1"}),
        ("HTTPS://u:p%40@[::1]:8443/", {"host": "[::1]", "port": 8443, "user": "u", "password": "p%40"}),
    ],
)  # fmt: skip
def test_a_webhook_keeps_all_parts_of_its_address(address: str, parts: dict[str, object]) -> None:
    asked = webhook_service(address, EVENT)
    assert {name: asked[name] for name in parts} == parts
