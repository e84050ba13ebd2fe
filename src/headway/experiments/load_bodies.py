"""Request bodies for a load run: given ones, or texts of mixed length in the shape a route takes.

Knows the three shapes of text requests; must not know how they are sent.
"""

from __future__ import annotations

import json
import random
import re
from math import exp, log

from headway.core.errors import ConfigError

_WORDS = re.findall(
    r"\w+",
    """
    time year people way day man thing woman life child world school state family student group
    country problem hand part place case week company system program question work government
    number night point home water room mother area money story fact month lot right study book eye
    job word business issue side kind head house service friend father power hour game line end
    member law car city community name president team minute idea body information back parent
    face others level office door health person art war history party result change morning reason
    research girl guy moment air
    """,
)


def texts(count: int, *, low: int = 5, high: int = 200, seed: int = 7) -> list[str]:
    """Texts of `low` to `high` words, log-uniform in length: many short, a few long."""
    rng = random.Random(seed)
    lengths = [round(exp(rng.uniform(log(low), log(high)))) for _ in range(count)]
    return [" ".join(rng.choices(_WORDS, k=n)) for n in lengths]


def text_body(path: str, text: str, model: str) -> bytes:
    """One text as the route at `path` takes it; `{"text": ...}` where it is none of ours."""
    document: dict[str, object]
    if path.startswith("/v1/embeddings"):
        document = {"model": model, "input": text}
    elif path.startswith("/v2/"):
        tensor = {"name": "text", "datatype": "BYTES", "shape": [1], "data": [text]}
        document = {"inputs": [tensor]}
    else:
        document = {"text": text}
    return json.dumps(document).encode()


def lines(content: bytes, name: str) -> list[bytes]:
    """One body per line. Raises ConfigError when there is none."""
    found = [line for line in content.splitlines() if line.strip()]
    if not found:
        raise ConfigError(f"{name} holds no body", param="bodies", hint="one request body per line")
    return found
