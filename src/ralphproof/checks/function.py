"""Python functions and plug-ins of installed packages as checks."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from ralphproof.base.text import truncate
from ralphproof.base.value import Json, replace
from ralphproof.engine.check import Check, CheckWatcher, Finding, Inspection, failure_fingerprint
from ralphproof.engine.sandbox import CommandWatcher

MAX_OUTPUT_CHARS = 5000


class FunctionCheck:
    """A Python function as a check: it returns True or False, (passed, why), or a Finding."""

    def __init__(self, function: Callable[[Inspection], object], name: str = "") -> None:
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self._function = function

    def renamed(self, name: str) -> FunctionCheck:
        """The same check under another name."""
        return FunctionCheck(self._function, name)

    def run(self, inspection: Inspection, watch: CommandWatcher) -> Finding:
        """Call the function; an exception, or any other result, is an error of the check itself."""
        began_s = time.monotonic()
        try:
            finding = self._finding(self._function(inspection))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the caller's function may raise anything)
            finding = self._to_finding(False, f"{type(error).__name__}: {error}", errored=True)
        return replace(finding, check=self.name, seconds=time.monotonic() - began_s)

    def _finding(self, answer: object) -> Finding:
        match answer:
            case Finding():
                return answer
            case bool(passed):
                return self._to_finding(passed, "")
            case (bool(passed), str(why)):
                return self._to_finding(passed, why)
            case _:
                return self._to_finding(False, f"it answered {answer!r}, neither True nor False", errored=True)

    def _to_finding(self, passed: bool, output: str, errored: bool = False) -> Finding:
        digest = hashlib.sha256(output.encode("utf-8", "surrogatepass")).hexdigest()
        fingerprint = failure_fingerprint(self.name, None, output)
        why = "an error of its own" if errored else "exit" if passed else "the answer no"
        return Finding(
            self.name, passed, command=self.name, why=why, output=truncate(output, MAX_OUTPUT_CHARS), digest=digest,
            fingerprint=fingerprint, errored=errored,
        )  # fmt: skip


class PluginCheck:
    """A check from an installed package. Whatever it raises becomes a finding.

    `required`, `action` and `hint` come from the settings. Its `key` is unique within its type.
    """

    def __init__(self, check: Check, name: str, required: bool = True, action: str = "APPEND", hint: str = "") -> None:
        kind, key = type(check), getattr(check, "key", "")
        self.name, self.required = name, required
        self.key = f"{kind.__module__}.{kind.__qualname__} {required} {key}" if key else ""
        self._check, self._action, self._hint = check, action, hint

    def run(self, inspection: Inspection, watch: CheckWatcher) -> Finding:
        """Run the check; the finding has the name from the settings."""
        guarded = FunctionCheck(lambda inspected: self._check.run(inspected, watch), self.name)
        finding = guarded.run(inspection, watch)
        fingerprint = finding.fingerprint or failure_fingerprint(
            self.name, finding.code, f"{finding.why}\n{finding.output}"
        )
        return replace(
            finding, required=self.required, action=self._action, hint=finding.hint or self._hint, key=self.key,
            output=truncate(finding.output, MAX_OUTPUT_CHARS), fingerprint="" if finding.passed else fingerprint,
        )  # fmt: skip


def create_plugin_check(
    factory: Callable[..., object], name: str, config: dict[str, Json], context: object
) -> Check | str:
    """The check that the factory returns; else why there is none."""
    try:
        check: Any = factory(name, config, context)
        return check if callable(getattr(check, "run", None)) else f"it made {check!r}, which has no run()"
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a package's code may raise anything; it rejects the config)
        return str(error) or type(error).__name__
