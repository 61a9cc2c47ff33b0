-- +goose Up

-- A table that has several keys gets its primary key last: while a table is empty the planner takes the youngest of
-- equally cheap indexes, and connections keep the plans that they make then.
--
-- Keys are compared byte by byte (collate "C"): that is the order in which a client sorts them, it is faster, ranges of
-- dkey are exact, and an operating system that changes its locales cannot break an index.

create table ingest_offsets (
  part           int primary key,
  stream         text not null,
  stream_created timestamptz not null,
  last_seq       bigint not null,
  last_uid       text,
  last_ts        timestamptz,
  created_at     timestamptz not null default now()
);

create table sessions (
  skey        text collate "C" primary key,
  tenant      text not null,
  session_key text not null,
  session_id  uuid not null,
  part        smallint not null,
  agent_id    text not null default '',
  run_class   text not null default 'default',
  state       text not null check (state in ('idle', 'queued', 'running', 'waiting', 'paused')),
  gen         bigint not null,
  run_id      uuid,
  owner       text,
  last_seq    bigint not null,
  done_seq    bigint not null default 0,
  want_seq    bigint not null default 0,
  wake_seq    bigint not null default 0,
  ctl_seq     bigint not null default 0,
  stop_run    uuid,
  stop_at     timestamptz,
  out_seq     bigint not null default 0,
  out_sent    bigint not null default 0,
  attempt     int not null default 0,
  stall       int not null default 0,
  stall_key   text,
  wait_kind   text,
  queued_at   timestamptz,
  touched_at  timestamptz,
  wake_at     timestamptz,
  created_at  timestamptz not null default now(),
  constraint owner_means_running check ((state = 'running') = (owner is not null)),
  constraint active_has_run check (state not in ('queued', 'running') or run_id is not null),
  constraint idle_has_none check (state <> 'idle' or run_id is null)
) with (fillfactor = 70);

-- The odd predicate (state || '') is on purpose: with a plain one the planner serves the claim, T4 and the mark from
-- this small index (all active rows) instead of the primary key, which is ruinous in a backlog. Only sweeper queries
-- spell the predicate like this.
create index sessions_active_idx on sessions (part, queued_at) where (state || '') in ('queued', 'running');
create index sessions_wake_idx on sessions (wake_at) where state = 'waiting';

create table inbox (
  skey        text collate "C" not null,
  seq         bigint not null,
  msg_uid     text collate "C" not null,
  kind        text not null,
  body        jsonb,
  grp         text,
  stream_seq  bigint,
  run_id      uuid,
  traceparent text,
  created_at  timestamptz not null default now()
);
-- msg_uid first: the index that begins with skey is the primary key and only that.
alter table inbox add unique (msg_uid, skey);
alter table inbox add primary key (skey, seq);

-- Items of events that carry several (albums).
create table inbox_items (
  skey     text collate "C",
  item_uid text collate "C",
  seq      bigint not null,
  primary key (skey, item_uid)
);

create table conversations (
  session_id  uuid primary key,
  skey        text collate "C" not null,
  parent      uuid,
  parent_upto bigint,
  title       text,
  started_at  timestamptz,
  ended_at    timestamptz,
  end_reason  text,
  created_at  timestamptz not null default now()
);
create index conversations_skey_idx on conversations (skey, started_at desc);

create table aliases (
  tenant     text,
  platform   text,
  account    text,
  id         text collate "C",
  canonical  text not null,
  created_at timestamptz not null default now(),
  primary key (tenant, platform, account, id)
);

create table timers (
  id         text collate "C" primary key,
  skey       text collate "C" not null,
  spec       text not null,
  body       jsonb,
  next_at    timestamptz,
  created_at timestamptz not null default now()
);
create index timers_next_idx on timers (next_at);

-- first_gen orders the runs of a session and never changes, so that the claim and the finish touch no index.
create table runs (
  run_id      uuid primary key check (run_id <> '00000000-0000-0000-0000-000000000000'),
  skey        text collate "C" not null,
  session_id  uuid not null,
  agent_id    text not null default '',
  state       text not null,
  first_gen   bigint not null,
  last_gen    bigint not null,
  owner       text,
  attempts    int not null default 0,
  from_seq    bigint,
  to_seq      bigint,
  pins        jsonb,
  usage       jsonb,
  error       text,
  started_at  timestamptz,
  ended_at    timestamptz,
  traceparent text,
  created_at  timestamptz not null default now()
) with (fillfactor = 70);
create index runs_session_idx on runs (skey, first_gen desc);

-- run_gen is runs.first_gen; the order of a conversation is (run_gen, n) of branch 0.
create table messages (
  skey       text collate "C" not null,
  run_gen    bigint not null,
  branch     smallint not null,
  n          int not null,
  session_id uuid not null,
  run_id     uuid not null,
  role       text not null,
  content    jsonb,
  inbox_seq  bigint,
  tokens     int,
  created_at timestamptz not null default now()
);
create index messages_conversation_idx on messages (skey, session_id, run_gen, n);
alter table messages add primary key (skey, run_gen, branch, n);

create table tool_calls (
  run_id     uuid,
  call_id    text collate "C",
  name       text not null,
  effect     text not null,
  state      text not null,
  idem_key   text,
  result     jsonb,
  created_at timestamptz not null default now(),
  primary key (run_id, call_id)
);

-- unique (dkey, skey): with skey first, plans take it for the primary key and read all rows of the session. sender and
-- until say who sends the row now; they are in no index, so that a claim is a heap-only update.
create table outbox (
  skey         text collate "C" not null,
  out_seq      bigint not null,
  dkey         text collate "C" not null,
  run_id       uuid,
  platform     text not null,
  target       jsonb,
  parts        jsonb,
  state        text not null default 'pending' check (state in ('pending', 'sent', 'unknown', 'dead')),
  attempts     int not null default 0,
  maybe        int not null default 0,
  next_at      timestamptz,
  plan         jsonb,
  sent_parts   int not null default 0,
  platform_ids jsonb,
  sender       text,
  until        timestamptz,
  traceparent  text,
  created_at   timestamptz not null default now()
) with (fillfactor = 80);
alter table outbox add unique (dkey, skey);
alter table outbox add primary key (skey, out_seq);
create index outbox_due_idx on outbox (next_at) where (state || '') = 'pending'; -- see sessions_active_idx

-- Messages shown while an answer is streamed; hints.
create table previews (
  skey        text collate "C",
  run_id      uuid,
  platform_id text collate "C",
  egress      text not null,
  created_at  timestamptz not null default now(),
  primary key (skey, run_id, platform_id)
);

create table dead_letters (
  id          uuid primary key,
  kind        text not null,
  ref         text not null,
  reason      text not null,
  payload     jsonb,
  replayed_at timestamptz,
  created_at  timestamptz not null default now()
);

create table workers (
  worker_id    text primary key,
  boot         uuid not null,
  heartbeat_at timestamptz not null,
  slots        int not null,
  used         int not null,
  draining     bool not null,
  created_at   timestamptz not null default now()
) with (fillfactor = 50);

-- Raised by AdmitOffsets: a SQLSTATE of its own, so that a moved offset is never taken for a poison message (class 22).
-- +goose StatementBegin
create function engine_offset_moved(partitions int[]) returns int language plpgsql as $$
begin
  raise exception 'ingest offset moved' using errcode = 'HE001', detail = partitions::text;
end $$;
-- +goose StatementEnd

-- Plans are made once per connection and kept; without statistics the first ones would be made for empty tables.
analyze ingest_offsets, sessions, inbox, inbox_items, conversations, aliases, timers, runs, messages, tool_calls,
  outbox, previews, dead_letters, workers;
