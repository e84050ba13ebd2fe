"""Streaming: each request's words come back one by one, and short answers end first.

headway serve examples/stream.py
curl -N localhost:8000/predict -H 'content-type: application/json' -d '{"text": "one two three"}'
"""

import time

import headway


class Echo(headway.Model):
    def predict(self, batch):
        """A generator over the batch: one entry per item each step; END where an item is done."""
        words = [item["text"].split() for item in batch]
        for step in range(max(map(len, words)) + 1):
            time.sleep(0.05)
            yield [w[step] + " " if step < len(w) else headway.END for w in words]
