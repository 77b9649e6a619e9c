"""A consumer of Celery with a hand-written inbox: python tasks.py sends the deliveries of a file, celery -A tasks works."""

import json
import os

import psycopg2
from celery import Celery

app = Celery("tasks", broker=os.environ["BROKER"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_prefetch_multiplier=100,
    broker_transport_options={"global_keyprefix": "semel-bench:"},
)
connection = None


@app.task(name="effect")
def effect(message):
    global connection
    if connection is None:
        connection = psycopg2.connect(os.environ["DATABASE_URL"])
        connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute(os.environ["EFFECT"], (message["id"], message["order"]))


if __name__ == "__main__":
    with open(os.environ["DELIVERIES"]) as lines, app.producer_or_acquire() as producer:
        for line in lines:
            effect.apply_async((json.loads(line),), producer=producer)
