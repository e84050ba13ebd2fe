"""`POST /predict`: any JSON or bytes to the model, untouched.

Knows which codec a content type asks for; must not read the body.
"""

from __future__ import annotations

from headway.core.request import Codec
from headway.server.exchange import Exchange

_CURL_DEFAULT = b"application/x-www-form-urlencoded"


def predict(ex: Exchange) -> None:
    """Hand the body to the model. A body without a content type is taken as JSON."""
    kind = ex.seen.get(b"content-type", b"application/json")
    json = kind == b"application/json" or b"json" in kind or kind == _CURL_DEFAULT
    request = ex.request(ex.body, Codec.JSON if json else Codec.RAW)
    ex.work = request
    served = ex.route.served
    if served is None or not served.started:
        served = served or ex.service.only()
        ex.service.check_started(served)
    ex.runtime = runtime = served.runtime
    runtime.submit(request)
