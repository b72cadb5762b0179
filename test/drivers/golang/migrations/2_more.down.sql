ALTER TABLE gm_users DROP COLUMN mood; DELETE FROM gm_users;
