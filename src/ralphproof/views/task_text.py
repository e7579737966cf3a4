"""What a task is kept as: JSON texts, which somebody else may have written."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.value import Json


def read_object(text: str | None) -> tuple[dict[str, Json] | None, str]:
    """The object behind a JSON text, and why there is none where it cannot be read."""
    if text is None:
        return None, ""
    import json

    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        return None, str(error)
    return (found, "") if isinstance(found, dict) else (None, "it is no JSON object")
