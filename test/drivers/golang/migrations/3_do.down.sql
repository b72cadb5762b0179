DROP TABLE gm_extra;
