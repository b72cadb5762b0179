BEGIN;
ALTER TABLE gm_users ADD COLUMN mood text DEFAULT 'ok';
INSERT INTO gm_users (name) VALUES ('a'), ('b');
UPDATE gm_users SET mood = 'sad' WHERE name = 'b';
COMMIT;
