"""Errors a user can cause, in one shape: status, code, public message, hint.

Knows nothing of HTTP dialects (`core.wire.problem` renders these) and nothing of our own mistakes,
which assert.
"""

from __future__ import annotations


class UserError(Exception):
    """What somebody outside did wrong, or met: enough to answer them in any protocol.

    `status` is the HTTP status, `code` a stable machine-readable word, `message` says what was
    wrong and `hint` what to change. `retry_after_s` is set where trying again later can help;
    `param` names the offending field.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str = "",
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.param = param
        self.retry_after_s = retry_after_s


class ConfigError(UserError):
    """A setting that cannot be honoured. Raised before anything starts."""

    def __init__(self, message: str, *, hint: str = "", param: str | None = None) -> None:
        super().__init__(400, "bad_config", message, hint=hint, param=param)
