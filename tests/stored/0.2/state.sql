PRAGMA user_version = 0;
BEGIN TRANSACTION;
CREATE TABLE parts (name TEXT PRIMARY KEY, version INTEGER NOT NULL);
INSERT INTO "parts" VALUES('sessions',2);
INSERT INTO "parts" VALUES('skills',1);
CREATE TABLE read_skills (session TEXT, name TEXT, PRIMARY KEY (session, name)) WITHOUT ROWID;
CREATE TABLE rewinds (
            id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, session INTEGER NOT NULL, at REAL NOT NULL,
            turn INTEGER NOT NULL, position INTEGER NOT NULL, kept INTEGER NOT NULL, removed TEXT NOT NULL,
            takes_back INTEGER, seal TEXT NOT NULL);
CREATE TABLE session_attached (
            session INTEGER NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (session, hash)) WITHOUT ROWID;
CREATE TABLE session_blobs (hash TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE session_messages (
            id INTEGER PRIMARY KEY, session INTEGER NOT NULL,
            at REAL NOT NULL, role TEXT NOT NULL, body TEXT NOT NULL);
INSERT INTO "session_messages" VALUES(1,1,1.79503774442491412168e+09,'system','{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-j2o4kae1/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."}');
INSERT INTO "session_messages" VALUES(2,1,1.79503774442491412168e+09,'user','{"role":"user","text":"Say hello."}');
INSERT INTO "session_messages" VALUES(3,1,1.79503774442491412168e+09,'assistant','{"role":"assistant","text":"Hello.","finish":"stop","usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0}}');
INSERT INTO "session_messages" VALUES(4,4,1.79503775035176682474e+09,'system','{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-j2o4kae1/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."}');
INSERT INTO "session_messages" VALUES(5,4,1.79503775035233211518e+09,'user','{"role":"user","text":"Remember the colour blue."}');
INSERT INTO "session_messages" VALUES(6,4,1.79503775035343980789e+09,'assistant','{"role":"assistant","text":"Hello.","finish":"stop","usage":{"input":126,"output":5,"cached":0,"cache_writes":0,"reasoning":0}}');
CREATE TABLE session_meta (
            session INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, seal TEXT NOT NULL DEFAULT '',
            PRIMARY KEY (session, key)) WITHOUT ROWID;
INSERT INTO "session_meta" VALUES(1,'stored run run-278648ec737e','1','a10863a4:350355b228a8a7cfddd800a818bed0c323a8d62369c6f40e08ee6f726e68eb05');
INSERT INTO "session_meta" VALUES(1,'taken from run run-278648ec737e','3','a10863a4:33c3d4a3724d8d0e98a248c8b3eaed1e0bde6cc1684d6e1e0569b4298ca71940');
INSERT INTO "session_meta" VALUES(4,'model','"scripted:talk.yaml"','a10863a4:dcd6f77538c1a021677941365fbe78b2775344d00a93c195ec450dccc72245a5');
CREATE TABLE sessions (
            id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, created REAL NOT NULL,
            updated REAL NOT NULL, messages INTEGER NOT NULL, turns INTEGER NOT NULL, title TEXT NOT NULL,
            chain TEXT NOT NULL DEFAULT '', seal TEXT NOT NULL DEFAULT '');
INSERT INTO "sessions" VALUES(1,'finished',1.79503774413267016413e+09,1.79503774442491412168e+09,3,1,'Say hello.','d7f8e464bf4e752f7cba3dd39d070ee49184daa5172bf8a099e9d7332cacbcaf','a10863a4:1b08572cf8d6641a313eb9afe207506f087202a4b47f7da06d7ee848ff912571');
INSERT INTO "sessions" VALUES(2,'waiting',1.79503774715755248063e+09,1.79503774715755248063e+09,0,0,'','','a10863a4:7d5173fe61c658139ca374e0e844ccfba2e7846abceedbcbbc620c550d1739b4');
INSERT INTO "sessions" VALUES(3,'queued',1.79503774942177057264e+09,1.79503774942177057264e+09,0,0,'','','a10863a4:6b6843b271637dd2eafef3f6c6db01520586c45a6dc393063737edb5ed84bb07');
INSERT INTO "sessions" VALUES(4,'notes',1.79503775028805923463e+09,1.79503775035343980789e+09,3,1,'Remember the colour blue.','c7aec57bc92733f9b6cd059f6ca1b10dda91499b85b66dd50071ec6fe890b19d','a10863a4:2ec0129e8c9e8a7f0e0b04dd8f2450801660591d43bbc554911c9370ec980354');
CREATE INDEX session_messages_of ON session_messages (session, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('sessions',4);
COMMIT;
