DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_class WHERE relname = 'gm_extra') THEN CREATE TABLE gm_extra (id int); END IF; END $$;
