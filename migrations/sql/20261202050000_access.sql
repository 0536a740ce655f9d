-- migrate:up

-- What viewers give to clients that ask for longer than an hour. Of a token only a hash is kept.
create table access_tokens (
    repo text collate "C" not null, -- the viewer's DID
    id text collate "C" not null, -- random; stands in the token, and names it when it is revoked
    token_sha256 bytea not null, -- of the whole token, which has 256 random bits
    name text not null, -- the viewer's own
    created_at timestamptz not null,
    expires_at timestamptz not null,
    primary key (repo, id)
);
create index access_tokens_by_expiry on access_tokens (expires_at);

-- Service-auth tokens that were used for a procedure, for which each is good once.
create table seen_tokens (
    repo text collate "C" not null, -- the issuer's DID
    jti_sha256 bytea not null,
    expires_at timestamptz not null,
    primary key (repo, jti_sha256)
);
create index seen_tokens_by_expiry on seen_tokens (expires_at);

-- As deploy/roles.sql does, which may have been run before there were these tables.
do $$
begin
    if to_regrole('memory_appview') is not null then
        grant insert, update, delete on identities, access_tokens, seen_tokens to memory_appview;
    end if;
end
$$;

-- migrate:down
