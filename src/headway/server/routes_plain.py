"""`POST /predict`: any JSON or bytes to the model, untouched.

Knows which codec a content type asks for; must not read the body.
"""

from __future__ import annotations

from headway.core.request import Codec
from headway.server.exchange import Exchange

_NOT_JSON = ("application/octet-stream",)


def predict(ex: Exchange) -> None:
    """Hand the body to the model. A body without a content type is taken as JSON."""
    kind = ex.seen.get(b"content-type")
    json = kind is None or b"json" in kind or kind.startswith(b"application/x-www-form-urlencoded")
    request = ex.submit(ex.body, Codec.JSON if json else Codec.RAW)
    ex.own(request)
    served = ex.route.served
    if served is None:
        served = ex.service.only()
    ex.service.submit(served, request)
