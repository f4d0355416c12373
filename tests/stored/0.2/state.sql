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
INSERT INTO "session_messages" VALUES(1,1,1.79503529021467161182e+09,'system','{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-w45yg45x/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."}');
INSERT INTO "session_messages" VALUES(2,1,1.79503529021467161182e+09,'user','{"role":"user","text":"Say hello."}');
INSERT INTO "session_messages" VALUES(3,1,1.79503529021467161182e+09,'assistant','{"role":"assistant","text":"Hello.","finish":"stop","usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0}}');
INSERT INTO "session_messages" VALUES(4,4,1.7950353227288601398e+09,'system','{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-w45yg45x/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."}');
INSERT INTO "session_messages" VALUES(5,4,1.7950353227297992706e+09,'user','{"role":"user","text":"Remember the colour blue."}');
INSERT INTO "session_messages" VALUES(6,4,1.79503532275479364393e+09,'assistant','{"role":"assistant","text":"Hello.","finish":"stop","usage":{"input":126,"output":5,"cached":0,"cache_writes":0,"reasoning":0}}');
CREATE TABLE session_meta (
            session INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, seal TEXT NOT NULL DEFAULT '',
            PRIMARY KEY (session, key)) WITHOUT ROWID;
INSERT INTO "session_meta" VALUES(1,'stored run run-37d20ef7cf67','1','56412c1e:bcf53bafcef2f132000d4aef2b5ad3912b96f76492f6ecb1c024d8764bae32b9');
INSERT INTO "session_meta" VALUES(1,'taken from run run-37d20ef7cf67','3','56412c1e:88764aab699d60b69561d555fbc6cb33345c2d2c89fb90d00c02e5d85a8e63ac');
INSERT INTO "session_meta" VALUES(4,'model','"scripted:talk.yaml"','56412c1e:7454c6f3b08dfc18620261271ca0f84669292256d5fc54a4896d7f74ccb9047a');
CREATE TABLE sessions (
            id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, created REAL NOT NULL,
            updated REAL NOT NULL, messages INTEGER NOT NULL, turns INTEGER NOT NULL, title TEXT NOT NULL,
            chain TEXT NOT NULL DEFAULT '', seal TEXT NOT NULL DEFAULT '');
INSERT INTO "sessions" VALUES(1,'finished',1.79503528845089077949e+09,1.79503529021467161182e+09,3,1,'Say hello.','0b1795bf4497e68167e7f017bd745e01fcb47de397e2797eeca83c648bb258a6','56412c1e:27da87bd8cf93b653d77b19f617a6be2d5d4122e592d8dbb26075e228e7478d5');
INSERT INTO "sessions" VALUES(2,'waiting',1.79503530383443093304e+09,1.79503530383443093304e+09,0,0,'','','56412c1e:38820ea9bd590d32432fe169ab0cee08f59e7d7aceb1c293ba61eb489d9567ff');
INSERT INTO "sessions" VALUES(3,'queued',1.79503531807644343379e+09,1.79503531807644343379e+09,0,0,'','','56412c1e:bf30ccc027cbbbcff4204ed9c97110b1297b5aeaf8a5c8bdfa586027b1a43f92');
INSERT INTO "sessions" VALUES(4,'notes',1.79503532244168448449e+09,1.79503532275479364393e+09,3,1,'Remember the colour blue.','141f168435ab0a70b5415b0e4c5dd68c75712dbb9aa617794fea94216e260307','56412c1e:366060bd566306ffdf7049b8611a9e023b61e3c2e93cd7038dcb11cc49a5e982');
CREATE INDEX session_messages_of ON session_messages (session, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('sessions',4);
COMMIT;
