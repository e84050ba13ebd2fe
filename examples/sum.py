"""The smallest model: adds numbers. Serve it with: headway serve examples/sum.py"""

import headway


class Sum(headway.Model):
    def load(self) -> None:
        """Runs once in each worker: read weights here."""
        self.bias = 0.0

    def predict(self, batch: list) -> list:
        """One result per item, in order. The items come from requests that arrived together."""
        return [{"y": sum(item["x"]) + self.bias} for item in batch]

    def warmup(self) -> list:
        return [{"x": [1.0, 2.0, 3.0]}]
