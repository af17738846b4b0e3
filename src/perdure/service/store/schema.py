"""The tables of the journal: what happened, what was decided, what was asked for and the results.

One schema for SQLite and PostgreSQL, changed only by Alembic migrations. Instants are seconds since the epoch
(``*_s``); values with a shape of their own are JSON, written and read by `perdure.service.store.codec`, and packed by
`perdure.service.store.packed` where they are many and never searched.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

_seq = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts only INTEGER keys up by itself

events = Table(
    "events",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("key", String, nullable=False, unique=True),  # the first event of a key is the only one
    Column("time_s", Float, nullable=False),
    Column("cluster", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("job_id", String, nullable=False, default=""),
    Column("payload", LargeBinary, nullable=False),  # the whole event, one of codec.StoredEvent; packed
)

jobs = Table(
    "jobs",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("cluster", String, nullable=False),
    Column("job_id", String, nullable=False),
    Column("name", String, nullable=False),
    Column("user", String, nullable=False),
    Column("partition", String, nullable=False),
    Column("state", String, nullable=False),  # model.jobs.JobState
    Column("gpus", Integer, nullable=False),
    Column("node_count", Integer, nullable=False),
    Column("submit_s", Float, nullable=False),
    Column("changed_s", Float, nullable=False),
    Column("story_s", Float, nullable=False, default=0.0),  # its submit, where another job had the id before; else 0
    Column("story_known_s", Float, nullable=False, default=0.0),  # when we first saw it; else 0
    Column("chain", String, nullable=False, default=""),  # that it is a link of; "" for most
    Column("payload", JSON, nullable=False),  # the whole model.jobs.Job
    UniqueConstraint("cluster", "job_id"),
    Index("jobs_by_state", "state", "seq"),
    Index("jobs_by_user", "user", "seq"),
    Index("jobs_by_chain", "chain", "user", "seq"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("cluster", String, nullable=False),
    Column("job_id", String, nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("state", String, nullable=False),  # model.jobs.AttemptState
    Column("start_s", Float, nullable=False),
    Column("end_s", Float),
    Column("gpus", Integer, nullable=False),
    Column("payload", JSON, nullable=False),  # the whole model.jobs.Attempt
    Column("verdict", JSON),  # the whole triage.verdict.Verdict, once judged
    UniqueConstraint("cluster", "job_id", "incarnation"),
    Index("attempts_by_end", "end_s"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("cluster", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("state", String, nullable=False),  # model.nodes.NodeState
    Column("changed_s", Float, nullable=False),
    Column("payload", JSON, nullable=False),  # the whole model.nodes.Node
)

exceptions = Table(  # of failed attempts, and raised ones: who owns the recovery, what was decided and why
    "exceptions",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("cluster", String, nullable=False),
    Column("job_id", String, nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("time_s", Float, nullable=False),
    Column("type", String, nullable=False),  # dotted, "job.shape", "node.failure"
    Column("state", String, nullable=False),  # coordination.record.ExceptionRecord.standing
    Column("owner", String, nullable=False, default=""),  # component that recovers; "" while nobody does
    Column("decision", String, nullable=False, default=""),  # retry.decide.DecisionKind; "" while open
    Column("reason", Text, nullable=False, default=""),
    Column("wasted_gpu_h", Float, nullable=False, default=0.0),  # of the failed attempt, but for what it saved
    Column("saved_gpu_h", Float, nullable=False, default=0.0),  # not burnt thanks to the decision
    Column("limit_gpu_h", Float, nullable=False, default=0.0),  # lost, since a limit stopped what was worth a retry
    Column("limited", Boolean, nullable=False, default=False),  # a limit stopped it, or made its retry later
    Column("payload", JSON, nullable=False),  # the whole coordination.record.ExceptionRecord
    Column("decided", JSON),  # the whole retry.decide.Decision, once decided
    Column("of_attempt", Boolean, nullable=False, default=True),  # False: somebody raised it
    Column("is_open", Boolean, nullable=False, default=False),  # on its way, or in force; read back at the start
    Column("said", Integer, nullable=False, default=0),  # verdicts in the record: it is never written over with fewer
    Index("exceptions_by_job", "cluster", "job_id", "seq"),
    Index("exceptions_by_time", "time_s"),
    Index("exceptions_by_open", "cluster", "is_open"),
    Index("exceptions_by_kind", "seq", "cluster", "type", "state"),  # narrow rows, to look for few among many
)

handlers = Table(  # programs that asked to be asked; read back at the start
    "handlers",
    metadata,
    Column("cluster", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("payload", JSON, nullable=False),  # the whole coordination.handlers.Registration
)

actions = Table(
    "actions",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("key", String, nullable=False, unique=True),
    Column("cluster", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("job_id", String, nullable=False, default=""),
    Column("incarnation", BigInteger, nullable=False, default=0),
    Column("node", String, nullable=False, default=""),
    Column("exception_id", String, nullable=False, default=""),
    Column("state", String, nullable=False),  # service.journal.ActionState
    Column("by", String, nullable=False),  # "perdure", or the name of the person who asked
    Column("reason", Text, nullable=False),
    Column("detail", Text, nullable=False, default=""),
    Column("created_s", Float, nullable=False),
    Column("expires_s", Float, nullable=False),  # not carried out after this instant
    Column("started_s", Float),
    Column("ended_s", Float),
    Column("payload", JSON, nullable=False),  # the whole model.actions.Action
    Index("actions_by_state", "state", "seq"),
    Index("actions_by_job", "cluster", "job_id", "seq"),
    Index("actions_by_start", "started_s"),
)

cases = Table(  # what the controller remembers of a job that failed; read back at the start
    "cases",
    metadata,
    Column("cluster", String, primary_key=True),
    Column("job_id", String, primary_key=True),
    Column("payload", JSON, nullable=False),  # the whole service.controller.Case
)

memory = Table(  # what else the controller remembers: one row a name
    "memory",
    metadata,
    Column("cluster", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("payload", JSON, nullable=False),
)

readings = Table(  # what triage read of a failed attempt, to learn from once its truth is known
    "readings",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("cluster", String, nullable=False),
    Column("job_id", String, nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("time_s", Float, nullable=False),
    Column("user", String, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("category", String, nullable=False),
    Column("excerpt", Text, nullable=False),  # as older versions kept it; "" where it is packed
    Column("causes", JSON, nullable=False),  # names of the rules that matched, in the log's order
    Column("message", Text, nullable=False, server_default=""),  # its root line, normalised; "" in older versions
    Column("packed", LargeBinary),  # the excerpt, compressed
    Column("was", String),  # the label without what the site learnt, where learning changed it
    Column("became", String),
    Column("changed_by", String),  # triage.learning.verdict_changes.ChangedBy
    UniqueConstraint("cluster", "job_id", "incarnation"),
    Index("readings_by_fingerprint", "cluster", "fingerprint", "seq"),
    Index(  # few rows, all that is told of them, and none of the excerpts before it
        "readings_changed",
        "cluster",
        "fingerprint",
        "was",
        "became",
        "changed_by",
        "user",
        "job_id",
        "time_s",
        sqlite_where=text("was IS NOT NULL"),
        postgresql_where=text("was IS NOT NULL"),
    ),
)

corrections = Table(  # verdicts that a person corrected
    "corrections",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("cluster", String, nullable=False),
    Column("job_id", String, nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("time_s", Float, nullable=False),
    Column("user", String, nullable=False),  # whose job it was
    Column("fingerprint", String, nullable=False),
    Column("transient", Boolean, nullable=False),
    Column("by", String, nullable=False),
    Column("for_all", Boolean, nullable=False),  # an operator's word: it holds for the jobs of all users
    Column("confirmed_by", String, nullable=False, server_default=""),  # the operator who made a user's word hold so
    UniqueConstraint("cluster", "job_id", "incarnation"),
    Index("corrections_by_fingerprint", "cluster", "fingerprint", "seq"),
)

outcomes = Table(  # what a job's retries proved of a message: outlives the job's own rows, bounded
    "outcomes",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("cluster", String, nullable=False),
    Column("job_id", String, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("time_s", Float, nullable=False),  # of the failure
    Column("user", String, nullable=False),
    Column("passed", Boolean, nullable=False),  # else it failed alike on other nodes
    Column("message", Text, nullable=False),
    UniqueConstraint("cluster", "job_id", "fingerprint"),
    Index("outcomes_by_fingerprint", "cluster", "fingerprint", "seq"),
)

set_aside = Table(  # what is not learnt from: a user's, a message's or a day's outcomes, or any new model
    "set_aside",
    metadata,
    Column("cluster", String, primary_key=True),
    Column("kind", String, primary_key=True),  # service.learning.set_aside.Kind
    Column("value", String, primary_key=True),
    Column("time_s", Float, nullable=False),
    Column("by", String, nullable=False),
    Column("reason", Text, nullable=False, server_default=""),  # why the service itself set it aside
    Column("since_seq", BigInteger, nullable=False, server_default="0"),  # of who counts again: outcomes up to then
)

good_runs = Table(  # what the log of a job's last good run said; the same job is the same user's of the same name
    "good_runs",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("cluster", String, nullable=False),
    Column("job", String, nullable=False),  # digest of user and name, which are hostile and of any length
    Column("time_s", Float, nullable=False),
    Column("state", LargeBinary, nullable=False),  # triage.goodrun.GoodRun
    UniqueConstraint("cluster", "job"),
    Index("good_runs_by_time", "cluster", "time_s"),
)

suspects = Table(  # components named for what failed on them; while `cleared_s` is empty they are suspects
    "suspects",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("cluster", String, nullable=False),
    Column("since_s", Float, nullable=False),
    Column("cleared_s", Float),
    Column("payload", JSON, nullable=False),  # the whole blame.standing.Standing
    Index("suspects_by_end", "cluster", "cleared_s"),
)

terms = Table(  # rounds of teaching, and the models they made
    "terms",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("cluster", String, nullable=False),
    Column("time_s", Float, nullable=False),
    Column("adopted", Boolean, nullable=False),
    Column("lessons", String, nullable=False),  # digest of the training examples
    Column("payload", JSON, nullable=False),  # the whole triage.learning.teach.Term
    Column("model", LargeBinary),  # of the newest adopted ones
)

wait_promises = Table(  # when waiting jobs were said to start, and when they did
    "wait_promises",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("cluster", String, nullable=False),
    Column("job_id", String, nullable=False),
    Column("asked_s", Float, nullable=False),
    Column("start_s", Float),  # empty while it has not started
    Column("wait_s", JSON, nullable=False),  # a number for each of waits.forecast.LEVELS
    Column("raw_s", JSON),  # the same before any correction; empty in those of older versions
    Column("kind", String, nullable=False, server_default=""),  # of job, waits.own_errors.kind_of
    Index("wait_promises_by_job", "cluster", "job_id", "asked_s"),
    Index("wait_promises_by_start", "cluster", "start_s"),
    Index("wait_promises_by_time", "cluster", "asked_s"),
)

policy_nice = Table(  # what waiting jobs had before the policy in force changed their place
    "policy_nice",
    metadata,
    Column("cluster", String, primary_key=True),
    Column("job_id", String, primary_key=True),
    Column("user", String, nullable=False),  # tells the job from another one of that id
    Column("nice", BigInteger, nullable=False),
    Column("noted_s", Float, nullable=False),
)

policy_sizes = Table(  # what waiting jobs asked for before the policy in force chose their size
    "policy_sizes",
    metadata,
    Column("cluster", String, primary_key=True),
    Column("job_id", String, primary_key=True),
    Column("user", String, nullable=False),  # tells the job from another one of that id
    Column("nodes", Integer, nullable=False),
    Column("most_nodes", Integer, nullable=False),
    Column("gpus_per_node", Integer, nullable=False),
    Column("tasks_per_node", Integer, nullable=False),
    Column("cpus_per_task", Integer, nullable=False),
    Column("noted_s", Float, nullable=False),
)

policy_terms = Table(  # since when a policy is in force without a break, and what was promised of it then
    "policy_terms",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("cluster", String, nullable=False),
    Column("policy", String, nullable=False),
    Column("since_s", Float, nullable=False),
    Column("until_s", Float),
    Column("promise", String, nullable=False),  # as JSON; "" where nothing was replayed before
)

policy_jobs = Table(  # jobs that took part while a policy was in force
    "policy_jobs",
    metadata,
    Column("cluster", String, primary_key=True),
    Column("job_id", String, primary_key=True),
    Column("came_s", Float, nullable=False, index=True),  # a resource manager may forget it when a job is put back
)

notices = Table(  # what somebody was to be notified of: of a subject, a kind is sent once until another kind is
    "notices",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("cluster", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("kind", String, nullable=False),  # service.notices.notice.Kind
    Column("time_s", Float, nullable=False),
    Index("notices_by_subject", "cluster", "subject", "seq"),
)

messages = Table(  # the outbox of notices: a message gathers, is on its way, and then sent or given up
    "messages",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=True),
    Column("key", String, nullable=False, unique=True),  # receivers drop doubles by it
    Column("cluster", String, nullable=False),
    Column("target", String, nullable=False),
    Column("whose", String, nullable=False, default=""),
    Column("state", String, nullable=False),  # service.notices.outbox.MessageState
    Column("due_s", Float, nullable=False),  # not sent, or tried again, before this instant
    Column("begun_s", Float),
    Column("ended_s", Float),
    Column("tries", Integer, nullable=False, default=0),
    Column("error", Text, nullable=False, default=""),
    Column("payload", JSON, nullable=False),  # the whole service.notices.notice.Message
    Index("messages_by_state", "cluster", "state", "target"),
    Index("messages_by_begin", "cluster", "target", "begun_s"),
)

notices_read = Table(  # how far the events were read for notices
    "notices_read",
    metadata,
    Column("cluster", String, primary_key=True),
    Column("seq", BigInteger, nullable=False),
)

owners = Table(  # who has a cluster; each that takes it over counts the epoch up
    "owners",
    metadata,
    Column("cluster", String, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("owner", String, nullable=False),  # "host:pid"
    Column("looked_s", Float),  # when the cluster was last looked at; empty before
    Column("standing", JSON),  # the whole service.core.standing.ClusterStanding
)
