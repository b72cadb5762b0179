DROP TABLE gm_posts, gm_users;
