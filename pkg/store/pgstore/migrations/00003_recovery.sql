-- +goose Up

-- Timers are looked after by the router that owns the partition of their session.
alter table timers add column part smallint not null default 0, add column tenant text not null default '';
create index timers_due_idx on timers (part, next_at);

alter table dead_letters add column replays int not null default 0;

-- The sweeper looks for positions that stand before settled rows. part never changes, so that no update pays for this.
create index sessions_part_idx on sessions (part);

-- Refuses what a statement cannot express as a constraint; class 22 is content that is rejected.
-- +goose StatementBegin
create function engine_refuse(reason text) returns int language plpgsql as $$
begin
  raise exception '%', reason using errcode = '22023';
end $$;
-- +goose StatementEnd

-- Replies that a run sends while it goes on have keys of their own.
create index outbox_run_idx on outbox (run_id) where run_id is not null;

-- Retention reads the oldest rows first. Not BRIN: its ranges stay old once new rows have taken the place of removed ones.
create index inbox_created_idx on inbox (created_at);
create index outbox_created_idx on outbox (created_at);
create index runs_created_idx on runs (created_at);
create index dead_letters_open_idx on dead_letters (ref) where replays = 0;

-- A conversation is found by its id before it has a row of its own. It changes with /new only.
create index sessions_conversation_idx on sessions (session_id);
