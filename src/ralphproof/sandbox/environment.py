"""Environment variables that are passed into a sandbox: an allow-list."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphproof.sandbox.plan import SandboxPlan


# Certificate stores: each names a file or folder that is mounted.
CERTIFICATE_VARIABLES = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO",
    "NIX_SSL_CERT_FILE", "PIP_CERT", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "DENO_CERT", "HEX_CACERTS_PATH", "COMPOSER_CAFILE",
)  # fmt: skip
# None of these holds a key, a socket, another program to start or a proxy.
ALLOWED_VARIABLES = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "PWD", "TZ", "LANG", "LANGUAGE", "LC_*",
    "TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES",
    "CI", "SOURCE_DATE_EPOCH", "VIRTUAL_ENV", "CONDA_PREFIX",
    # Facts about the run. Our state folder and settings are not among them.
    "TASK_FOLDER", "RALPH_TURN", "RALPH_RUN_ID", "RALPH_DIR", "RALPH_ITERATION", "RALPH_MAX_ITERATIONS",
    "RALPH_PROJECT", "RALPH_TASK", "RALPH_TASK_*", "RALPH_TITLE", "RALPH_STORY", "RALPH_STORY_*", "RALPH_STAGE",
    "RALPH_MODE", "RALPH_VERIFY", "RALPH_REVIEW_*", "RALPH_PROMPT_FILE", "RALPH_FEEDBACK", "RALPH_CRITERIA",
    "RALPH_PRD", "RALPH_MESSAGE", "RALPH_STATUS", "RALPH_EVENT", "RALPH_HOOKED", "RALPH_SANDBOX",
    "RALPH_CHARS_PER_TOKEN", "RALPH_HOOK", "RALPH_VERDICT", "RALPH_OUTCOME", "RALPH_REASON", "RALPH_PROOF",
    "RALPH_EXIT_CODE", "RALPH_PROJECT_DIR", "RALPH_RUN_DIR",
    *CERTIFICATE_VARIABLES,
    # Behaviour of Python; not what it runs first (PYTHONSTARTUP), nor where it is (PYTHONHOME).
    "PYTHONPATH", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED",
    "PYTHONWARNINGS", "PYTHONFAULTHANDLER", "PYTHONDEVMODE", "PYTHONOPTIMIZE", "PYTHONSAFEPATH", "PYTHONNOUSERSITE",
    # Locations of tools in the home folder.
    "PYENV_ROOT", "PYENV_VERSION", "NVM_DIR", "NVM_BIN", "FNM_DIR", "FNM_MULTISHELL_PATH", "VOLTA_HOME", "NODENV_ROOT",
    "N_PREFIX", "PNPM_HOME", "BUN_INSTALL", "DENO_INSTALL", "ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR",
    "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "CARGO_HOME", "RBENV_ROOT", "SDKMAN_DIR", "JENV_ROOT", "JAVA_HOME", "GOENV_ROOT",
    "GOROOT", "GOPATH", "PHPENV_ROOT", "OPAMROOT", "DOTNET_ROOT", "HOMEBREW_PREFIX", "HOMEBREW_CELLAR",
    "HOMEBREW_REPOSITORY", "UV_PYTHON_INSTALL_DIR", "UV_TOOL_DIR", "PIPX_HOME", "RYE_HOME", "MAMBA_ROOT_PREFIX",
)  # fmt: skip


def filter_environment(env: Mapping[str, str], keeps: Iterable[str]) -> dict[str, str]:
    """Variables on the list. A star at the end of a name matches every name with that prefix."""
    names = set(keeps)
    beginnings = tuple(name[:-1] for name in names if name.endswith("*"))
    return {name: text for name, text in env.items() if name in names or (beginnings and name.startswith(beginnings))}


# Back ends whose entering program must be given the names of variables.


TURN_VARIABLE = "RALPH_TURN"  # by which whoever owns a command finds its processes


def passed_variable_names(plan: SandboxPlan, present: Iterable[str]) -> tuple[str, ...]:
    """Those of `present` that the plan passes, those that it sets, and the turn's mark."""
    names = {name for name in plan.passed_variables if not name.endswith("*")}
    beginnings = tuple(name[:-1] for name in plan.passed_variables if name.endswith("*"))
    kept = [name for name in sorted(present) if name in names or (beginnings and name.startswith(beginnings))]
    return tuple(dict.fromkeys((*kept, *(name for name, _ in plan.variables), TURN_VARIABLE)))
