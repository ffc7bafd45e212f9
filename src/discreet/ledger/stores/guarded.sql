-- The functions through which a server's role writes to a ledger. @SCHEMA@ is replaced by the ledger's schema, quoted.
--
-- They check what SQL can check without pricing an event: that a price is at least 0, that the new total is at least the
-- old one plus the price, that it is within the limits, and that the accounts above are charged in the same transaction.
-- Numbers are exact: integers of type numeric, compared after cross-multiplication. NULL stands for an infinite amount.

CREATE OR REPLACE FUNCTION discreet_hex(digits text) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    total numeric := 0;
    chunk text;
    place integer := 1;
BEGIN
    IF digits !~ '^[0-9a-f]+$' OR length(digits) > 5001 THEN
        RAISE EXCEPTION 'not a number of a ledger' USING ERRCODE = 'DSC01';
    END IF;
    WHILE place <= length(digits) LOOP
        chunk := substr(digits, place, 7);
        total := total * (16 ^ length(chunk))::bigint + ('x' || lpad(chunk, 8, '0'))::bit(32)::bigint;
        place := place + 7;
    END LOOP;
    RETURN total;
END $$;

-- The numerator and the denominator of a stored amount.
CREATE OR REPLACE FUNCTION discreet_ratio(amount text) RETURNS numeric[]
LANGUAGE plpgsql IMMUTABLE STRICT SET search_path = pg_catalog, @SCHEMA@, pg_temp AS $$
DECLARE
    dyadic text[] := regexp_match(amount, '^(-?)([0-9a-f]+)/2\^([1-9][0-9]{0,4})$');
    plain text[] := regexp_match(amount, '^(-?[0-9]+)/([1-9][0-9]*)$');
    exponent integer;
BEGIN
    IF dyadic IS NOT NULL THEN
        exponent := dyadic[3]::integer;
        IF exponent > 20000 THEN
            RAISE EXCEPTION 'not an amount of a ledger' USING ERRCODE = 'DSC01';
        END IF;
        RETURN ARRAY[
            CASE WHEN dyadic[1] = '-' THEN -discreet_hex(dyadic[2]) ELSE discreet_hex(dyadic[2]) END,
            discreet_hex(substr('1248', exponent % 4 + 1, 1) || repeat('0', exponent / 4))
        ];
    ELSIF plain IS NOT NULL AND length(amount) <= 12000 THEN
        RETURN ARRAY[plain[1]::numeric, plain[2]::numeric];
    END IF;
    RAISE EXCEPTION 'not an amount of a ledger' USING ERRCODE = 'DSC01';
END $$;

-- Whether after >= before + change, exactly.
CREATE OR REPLACE FUNCTION discreet_covers(before text, change text, after text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, @SCHEMA@, pg_temp AS $$
DECLARE
    b numeric[] := discreet_ratio(before);
    c numeric[] := discreet_ratio(change);
    a numeric[] := discreet_ratio(after);
BEGIN
    IF after IS NULL THEN
        RETURN true;
    ELSIF before IS NULL OR change IS NULL THEN
        RETURN false;
    END IF;
    RETURN a[1] * b[2] * c[2] >= (b[1] * c[2] + c[1] * b[2]) * a[2];
END $$;

-- Whether one amount is at most another; an infinite one never is.
CREATE OR REPLACE FUNCTION discreet_within(amount text, most text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, @SCHEMA@, pg_temp AS $$
DECLARE
    a numeric[] := discreet_ratio(amount);
    m numeric[] := discreet_ratio(most);
BEGIN
    RETURN amount IS NOT NULL AND a[1] * m[2] <= m[1] * a[2];
END $$;

-- The rule of every charge: the totals may stand at `after`, having stood at `before`, for this price.
CREATE OR REPLACE FUNCTION discreet_allows(terms jsonb, before jsonb, change jsonb, claimed text, after jsonb)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, @SCHEMA@, pg_temp AS $$
DECLARE
    orders integer := jsonb_array_length(terms->'limits');
    form text := terms->'budget'->>'tag';
    one boolean := false;
    every boolean := true;
    fits boolean;
BEGIN
    IF before - 'spent' - 'claimed' <> '{}' OR after - 'spent' - 'claimed' <> '{}'
        OR jsonb_array_length(before->'spent') <> orders OR jsonb_array_length(after->'spent') <> orders
        OR jsonb_array_length(change) <> orders OR form NOT IN ('pure', 'approximate', 'zcdp', 'rdp', 'gdp')
    THEN
        RETURN false;  -- also totals of parts of partitions, which add up by another rule
    END IF;
    FOR i IN 0..orders - 1 LOOP
        IF discreet_covers(before->'spent'->>i, change->>i, after->'spent'->>i) IS NOT TRUE THEN
            RETURN false;
        END IF;
        fits := discreet_within(after->'spent'->>i, terms->'limits'->>i);
        one := one OR fits;
        every := every AND fits;
    END LOOP;
    RETURN discreet_covers(before->>'claimed', claimed, after->>'claimed')
        AND discreet_within(after->>'claimed', terms->>'aside')
        AND CASE WHEN form = 'approximate' THEN one ELSE every END;
END $$;

-- Whether every amount of a price is at least 0, or infinite.
CREATE OR REPLACE FUNCTION discreet_price(change jsonb, claimed text) RETURNS boolean
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, @SCHEMA@, pg_temp AS $$
    SELECT (discreet_ratio(claimed))[1] >= 0
        AND coalesce(bool_and(amount IS NULL OR (discreet_ratio(amount))[1] >= 0), false)
    FROM jsonb_array_elements_text(change) AS each(amount)
$$;

-- Whether a refund takes back no more than a reservation charged; NULL amounts are never handed back.
CREATE OR REPLACE FUNCTION discreet_refund(change jsonb, claimed text, charged jsonb, charged_claimed text)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, @SCHEMA@, pg_temp AS $$
BEGIN
    IF jsonb_array_length(change) <> jsonb_array_length(charged) THEN
        RETURN false;
    END IF;
    FOR i IN 0..jsonb_array_length(change) - 1 LOOP
        IF charged->>i IS NULL THEN
            IF (discreet_ratio(change->>i))[1] IS DISTINCT FROM 0 THEN
                RETURN false;
            END IF;
        ELSIF discreet_within(change->>i, '0/1') IS NOT TRUE
            OR (discreet_ratio(charged->>i))[1] * (discreet_ratio(change->>i))[2]
                + (discreet_ratio(change->>i))[1] * (discreet_ratio(charged->>i))[2] < 0
        THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN discreet_within(claimed, '0/1')
        AND (discreet_ratio(charged_claimed))[1] * (discreet_ratio(claimed))[2]
            + (discreet_ratio(claimed))[1] * (discreet_ratio(charged_claimed))[2] >= 0;
END $$;

-- An account's row, locked until the transaction ends.
CREATE OR REPLACE FUNCTION discreet_locked(wanted text) RETURNS SETOF discreet_account
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, @SCHEMA@, pg_temp AS $$
    SELECT * FROM @SCHEMA@.discreet_account WHERE name = wanted FOR UPDATE
$$;

CREATE OR REPLACE FUNCTION discreet_lock_accounts() RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, @SCHEMA@, pg_temp AS $$
BEGIN
    LOCK TABLE @SCHEMA@.discreet_account IN SHARE ROW EXCLUSIVE MODE;
END $$;

CREATE OR REPLACE FUNCTION discreet_seal(account @SCHEMA@.discreet_account) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT encode(sha256(convert_to(concat_ws(E'\n', account.name, coalesce(account.parent, ''), account.terms,
        account.state, account.sequence, account.head), 'UTF8')), 'hex')
$$;

-- Append one entry to an account, with the totals after it.
CREATE OR REPLACE FUNCTION discreet_append(
    wanted text, new_key text, new_reservation bigint, new_body text, new_state text
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, @SCHEMA@, pg_temp AS $$
DECLARE
    held @SCHEMA@.discreet_account;
    entry jsonb := new_body::jsonb;
    kind text := entry->>'kind';
    reserved jsonb;
    allowed boolean;
BEGIN
    SELECT * INTO held FROM @SCHEMA@.discreet_account WHERE name = wanted FOR UPDATE;
    IF NOT FOUND OR entry->>'account' IS DISTINCT FROM wanted
        OR (entry->>'sequence')::bigint IS DISTINCT FROM held.sequence + 1
        OR entry->>'previous' IS DISTINCT FROM held.head OR entry->>'key' IS DISTINCT FROM new_key
        OR (entry->>'reservation')::bigint IS DISTINCT FROM new_reservation
        OR held.seal IS DISTINCT FROM discreet_seal(held)
    THEN
        RAISE EXCEPTION 'the entry does not follow the last one of its account' USING ERRCODE = 'DSC02';
    END IF;
    IF kind IN ('spend', 'reserve') AND NOT entry ? 'part' THEN
        allowed := entry->'event' <> 'null' AND discreet_price(entry->'change', entry->>'claimed')
            AND discreet_allows(
                held.terms::jsonb, held.state::jsonb, entry->'change', entry->>'claimed', new_state::jsonb);
    ELSIF kind = 'close' THEN
        SELECT other.body::jsonb INTO reserved FROM @SCHEMA@.discreet_entry AS other
        WHERE other.account = wanted AND other.sequence = new_reservation;
        allowed := reserved->>'kind' = 'reserve'
            AND NOT EXISTS (
                SELECT FROM @SCHEMA@.discreet_entry AS other
                WHERE other.account = wanted AND other.reservation = new_reservation
                    AND other.body::jsonb->>'kind' = 'close')
            AND discreet_refund(entry->'change', entry->>'claimed', reserved->'change', reserved->>'claimed')
            AND discreet_refunded(held.state::jsonb, entry->'change', entry->>'claimed', new_state::jsonb);
    ELSE
        allowed := kind IN ('allot', 'start', 'attest') AND new_state = held.state;
    END IF;
    IF allowed IS NOT TRUE THEN
        RAISE EXCEPTION 'the price, the total or the limit does not allow this entry' USING ERRCODE = 'DSC03';
    END IF;
    held.state := new_state;
    held.sequence := held.sequence + 1;
    held.head := encode(sha256(convert_to(new_body, 'UTF8')), 'hex');
    held.seal := discreet_seal(held);
    INSERT INTO @SCHEMA@.discreet_entry (account, sequence, key, reservation, body, hash)
    VALUES (wanted, held.sequence, new_key, new_reservation, new_body, held.head);
    UPDATE @SCHEMA@.discreet_account
    SET state = held.state, sequence = held.sequence, head = held.head, seal = held.seal WHERE name = wanted;
END $$;

-- Whether the totals after a refund are at least those before, less the refund.
CREATE OR REPLACE FUNCTION discreet_refunded(before jsonb, change jsonb, claimed text, after jsonb) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, @SCHEMA@, pg_temp AS $$
BEGIN
    IF before - 'spent' - 'claimed' <> '{}' OR after - 'spent' - 'claimed' <> '{}'
        OR jsonb_array_length(before->'spent') <> jsonb_array_length(after->'spent')
        OR jsonb_array_length(before->'spent') <> jsonb_array_length(change)
    THEN
        RETURN false;
    END IF;
    FOR i IN 0..jsonb_array_length(change) - 1 LOOP
        IF discreet_covers(before->'spent'->>i, change->>i, after->'spent'->>i) IS NOT TRUE THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN discreet_covers(before->>'claimed', claimed, after->>'claimed');
END $$;

-- Open an account with nothing spent.
CREATE OR REPLACE FUNCTION discreet_open(new_terms text, new_state text, new_body text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, @SCHEMA@, pg_temp AS $$
DECLARE
    held @SCHEMA@.discreet_account;
    entry jsonb := new_body::jsonb;
    terms jsonb := new_terms::jsonb;
BEGIN
    held.name := terms->>'name';
    held.parent := terms->>'parent';
    held.terms := new_terms;
    held.state := new_state;
    held.sequence := 0;
    held.head := encode(sha256(convert_to(new_body, 'UTF8')), 'hex');
    held.seal := discreet_seal(held);
    IF entry->>'kind' IS DISTINCT FROM 'open' OR entry->>'account' IS DISTINCT FROM held.name
        OR (entry->>'sequence')::bigint IS DISTINCT FROM 0 OR entry->>'terms' IS DISTINCT FROM new_terms
        OR entry->>'previous' IS DISTINCT FROM repeat('0', 64)
        OR (new_state::jsonb->>'claimed') IS DISTINCT FROM '0/1'
        OR EXISTS (
            SELECT FROM jsonb_array_elements_text(new_state::jsonb->'spent') AS each(amount)
            WHERE amount IS DISTINCT FROM '0/1')
        OR (held.parent IS NOT NULL AND held.name NOT LIKE '%/%')
        OR (held.parent IS NOT NULL AND NOT EXISTS (
            SELECT FROM @SCHEMA@.discreet_account AS above
            WHERE above.name = held.parent AND above.name = regexp_replace(held.name, '/[^/]*$', '')))
        OR (held.parent IS NULL AND held.name LIKE '%/%')
    THEN
        RAISE EXCEPTION 'this is not the first entry of a new account' USING ERRCODE = 'DSC02';
    END IF;
    INSERT INTO @SCHEMA@.discreet_account VALUES (held.*);
    INSERT INTO @SCHEMA@.discreet_entry (account, sequence, key, reservation, body, hash)
    VALUES (held.name, 0, NULL, NULL, new_body, held.head);
END $$;

-- At commit: a charge to a part was also made to every account above it. An entry that says it repeats the charge of a
-- part further down must name one that is there and says the same; that one is then checked for the whole path.
CREATE OR REPLACE FUNCTION discreet_charged_above() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, @SCHEMA@, pg_temp AS $$
DECLARE
    entry jsonb := NEW.body::jsonb;
    above text;
    matched boolean;
BEGIN
    IF entry->>'kind' NOT IN ('spend', 'reserve', 'close') THEN
        RETURN NULL;
    END IF;
    IF entry->'origin' <> 'null' THEN
        SELECT starts_with(other.account, NEW.account || '/') AND other.hash = entry->'origin'->>2
            AND other.body::jsonb->'origin' = 'null' AND other.body::jsonb->'event' = entry->'event'
            AND other.body::jsonb->>'kind' = entry->>'kind'
            AND other.body::jsonb->'above' @> jsonb_build_array(jsonb_build_array(NEW.account, NEW.sequence))
        INTO matched
        FROM @SCHEMA@.discreet_entry AS other
        WHERE other.account = entry->'origin'->>0 AND other.sequence = (entry->'origin'->>1)::bigint;
        IF matched IS NOT TRUE THEN
            RAISE EXCEPTION 'the entry repeats no charge of a part' USING ERRCODE = 'DSC03';
        END IF;
        RETURN NULL;
    END IF;
    SELECT account.parent INTO above FROM @SCHEMA@.discreet_account AS account WHERE account.name = NEW.account;
    WHILE above IS NOT NULL LOOP
        SELECT other.body::jsonb->'origin' = jsonb_build_array(NEW.account, NEW.sequence, NEW.hash)
            AND other.body::jsonb->'event' = entry->'event' AND other.body::jsonb->>'kind' = entry->>'kind'
        INTO matched
        FROM @SCHEMA@.discreet_entry AS other, jsonb_array_elements(entry->'above') AS named
        WHERE named->>0 = above AND other.account = above AND other.sequence = (named->>1)::bigint;
        IF matched IS NOT TRUE THEN
            RAISE EXCEPTION 'the account above was not charged' USING ERRCODE = 'DSC03';
        END IF;
        SELECT account.parent INTO above FROM @SCHEMA@.discreet_account AS account WHERE account.name = above;
    END LOOP;
    RETURN NULL;
END $$;

DROP TRIGGER IF EXISTS discreet_charged_above ON discreet_entry;
CREATE CONSTRAINT TRIGGER discreet_charged_above AFTER INSERT ON discreet_entry
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION discreet_charged_above();
