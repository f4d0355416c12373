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
INSERT INTO "session_messages" VALUES(1,1,1.79505223846042728428e+09,'system','{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-85trzk4g/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."}');
INSERT INTO "session_messages" VALUES(2,1,1.79505223846042728428e+09,'user','{"role":"user","text":"Say hello."}');
INSERT INTO "session_messages" VALUES(3,1,1.79505223846042728428e+09,'assistant','{"role":"assistant","text":"Hello.","finish":"stop","usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0}}');
INSERT INTO "session_messages" VALUES(4,4,1.79505224457454395296e+09,'system','{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-85trzk4g/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."}');
INSERT INTO "session_messages" VALUES(5,4,1.7950522445749394893e+09,'user','{"role":"user","text":"Remember the colour blue."}');
INSERT INTO "session_messages" VALUES(6,4,1.79505224457592630392e+09,'assistant','{"role":"assistant","text":"Hello.","finish":"stop","usage":{"input":126,"output":5,"cached":0,"cache_writes":0,"reasoning":0}}');
CREATE TABLE session_meta (
            session INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, seal TEXT NOT NULL DEFAULT '',
            PRIMARY KEY (session, key)) WITHOUT ROWID;
INSERT INTO "session_meta" VALUES(1,'stored run run-83c7e0ff7700','1','760d5576:90d983823f64c1cab503c53a50ff3c4d807aeb559a157484f7db88ecdbfc59e9');
INSERT INTO "session_meta" VALUES(1,'taken from run run-83c7e0ff7700','3','760d5576:e83e1548011e212d18c27a5a01ddf5b6a29e5842dbe1e352b1ab666b234f7870');
INSERT INTO "session_meta" VALUES(4,'model','"scripted:talk.yaml"','760d5576:400ae611ed14f4c2c40e12557349c2722135fd7a2a47c822c45a734d8ac2370a');
CREATE TABLE sessions (
            id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, created REAL NOT NULL,
            updated REAL NOT NULL, messages INTEGER NOT NULL, turns INTEGER NOT NULL, title TEXT NOT NULL,
            chain TEXT NOT NULL DEFAULT '', seal TEXT NOT NULL DEFAULT '');
INSERT INTO "sessions" VALUES(1,'finished',1.79505223831962680818e+09,1.79505223846042728428e+09,3,1,'Say hello.','883b8b0c9869d11b7a958096b7fe15fd1e7fab97cf1c0b493fb4ee8a47dbe5f8','760d5576:7c1e030bf147008121594571e7ef0a458d58a794130c56e25b5451b2a17d2e1f');
INSERT INTO "sessions" VALUES(2,'waiting',1.79505224156603670117e+09,1.79505224156603670117e+09,0,0,'','','760d5576:721b62251b2f69dbb9b32b823e54da1d28f814fe184afa58e28d3c9ab5ea9ef2');
INSERT INTO "sessions" VALUES(3,'queued',1.79505224374604606622e+09,1.79505224374604606622e+09,0,0,'','','760d5576:8f7d8a39d1fde417869a2eb83a39f2f5f7bcfce327f77c602b5bb83b1e25cd8f');
INSERT INTO "sessions" VALUES(4,'notes',1.79505224455528879169e+09,1.79505224457592630392e+09,3,1,'Remember the colour blue.','6e8bb3d7b8c615d1d313eb7446f7df388c3ee05ae21038c02ebff0736f095c1f','760d5576:8ea7e7ef363907755e71f404d0a9bfabda36268b1a7ecd4e6c300bca4a621650');
CREATE INDEX session_messages_of ON session_messages (session, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('sessions',4);
COMMIT;
