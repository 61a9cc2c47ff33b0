-- +goose Up

-- An id that stands for others never becomes an alias itself. The index has no column of the primary key, so that
-- neither is taken for the other.
create index aliases_canonical_idx on aliases (canonical);

-- A message without a fresh id is refused as content, like one without a run id.
alter table conversations add constraint conversations_session_id_check
  check (session_id <> '00000000-0000-0000-0000-000000000000');
