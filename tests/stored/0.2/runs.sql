PRAGMA user_version = 0;
BEGIN TRANSACTION;
CREATE TABLE application_versions (
    version_id TEXT NOT NULL PRIMARY KEY,
    version_name TEXT NOT NULL UNIQUE,
    version_timestamp INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000),
    created_at INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000)
, "application_name" TEXT DEFAULT NULL);
INSERT INTO "application_versions" VALUES('f6ed662d-58a5-4113-9352-dd9978b795d7','0.2.0+ce6d3fb83804',1795037744000,1795037744000,'forge');
CREATE TABLE dbos_migrations (version INTEGER NOT NULL PRIMARY KEY);
INSERT INTO "dbos_migrations" VALUES(123);
CREATE TABLE forge_background (
	run TEXT NOT NULL, 
	segment INTEGER NOT NULL, 
	worker TEXT NOT NULL, 
	PRIMARY KEY (run, segment)
);
CREATE TABLE forge_durable (
	part TEXT NOT NULL, 
	version INTEGER NOT NULL, 
	PRIMARY KEY (part)
);
INSERT INTO "forge_durable" VALUES('runs',3);
CREATE TABLE forge_events (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	run TEXT NOT NULL, 
	segment INTEGER NOT NULL, 
	size INTEGER NOT NULL, 
	packed BLOB NOT NULL
);
INSERT INTO "forge_events" VALUES(1,'run-278648ec737e',1,3,X'0103062A52A963851AA2483288DC666A606C6E6E62A2676C68646A60690A0D5E43E4E0454AE268A10C2C63720B40FCE0C44A858CD49C9C7C3DA55A2E502983960721052E165B8D8C0CCD0CCDA1B61A11672B347F7AC0ECC3C8A786C4E4532437185B1A19C07C6E4CA41BC0B9D71033F71A1A1921F2AF2909F9B71600');
INSERT INTO "forge_events" VALUES(2,'run-278648ec737e',1,1,X'0103062AA8D481A758D420459642E437530363737313133D6323131323230B68009B2007309226EC79C5233527275F4F490751B825E61597A71641D339C822CC846E68648448EAA6A42575608C422420891E52B0C1C34507E4558887758DCC2DCC4C2C5293CD8DCD538112A0E23417524019D40200');
INSERT INTO "forge_events" VALUES(3,'run-fb88feef4acd',1,3,X'018D54410AC32010BCF715E2B90475B586FEA02FE8C54BB0290DA4B107218592BF7735424D6221E0415961C6716650D4AC75CE4B45B3C92F6D8A81D6525792090E0292BC3C97776C3A1F4CB611192BE6F90AE76BF02469C8E07C5BD1E9107A6695C2B9720BB89C01309570C52EDC14D00B8959209D2737370E01B8E0FCB8B5AD541AEC09576DAD829ADFD75DF42711195129B41489A8DC4574EBC212915572E2A3960EA51F13C363D0F8864695FDDB1B7AC4137EBFC75BF3E8D1F6BD337442177F01');
INSERT INTO "forge_events" VALUES(4,'run-fb88feef4acd',1,3,X'01CD96CF6E842010C65F8578699B6CCC2ACC023E478F5C8CA595D468B2CBEE1E36BE7B07B4C57F4DF1D6C483284C866FBEE1078A3A3946CACB27BAD6EFBED20C38AD4EF888AA022AB2F7B7C25BA9683BAB538B969F88BF0C12BA138E9473C65326F29C493A9603A6E5B897C63A534614652BAD85917C92F382250FE5BDA4D0072AF9CE5F25071CA11A16670DBF6ADD349D4A7A2754D8924B710C3A9CE1F8E14704ACF6D5D700DF3A5BEBF3A87977361FA6F5830DEFFEAE7184A783A692318051D2D3FF9774CE9F559FEC4D67196E8EBB69238565CF7BF37E2988B1C4E979211890940EE9788A3E05DCABF6B5D68EDEC445302DA29FDC6BDDBA8506A7DD4A83D86C741ADBCE71DDFC575AC9617E5F70A4DFBE29C4A6BF383EB8E494B1A30330480AB25F13308B21E0C4CF1C4088D1D03CCAD00316B33516B39C0630E67BC8D87F01');
CREATE TABLE forge_files (
	run TEXT NOT NULL, 
	name TEXT NOT NULL, 
	size INTEGER NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY (run, name)
);
CREATE TABLE forge_intents (
	run TEXT NOT NULL, 
	segment INTEGER NOT NULL, 
	call TEXT NOT NULL, 
	attempt TEXT NOT NULL, 
	detail TEXT, 
	PRIMARY KEY (run, segment, call)
);
CREATE TABLE forge_marks (
	run TEXT NOT NULL, 
	verdict TEXT NOT NULL, 
	note TEXT NOT NULL, 
	"by" TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	PRIMARY KEY (run)
);
CREATE TABLE forge_messages (
	run TEXT NOT NULL, 
	place INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	message TEXT NOT NULL, 
	PRIMARY KEY (run, place, position)
);
INSERT INTO "forge_messages" VALUES('run-278648ec737e',1,0,'[{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-j2o4kae1/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."},{"role":"user","text":"Say hello."}]');
INSERT INTO "forge_messages" VALUES('run-278648ec737e',2,0,'{"role":"assistant","text":"Hello.","finish":"stop","usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0}}');
INSERT INTO "forge_messages" VALUES('run-fb88feef4acd',1,0,'[{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-j2o4kae1/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."},{"role":"user","text":"Write a note."}]');
INSERT INTO "forge_messages" VALUES('run-fb88feef4acd',2,0,'{"role":"assistant","text":"I write it down.","tool_calls":[{"id":"call_ce4573c63c68cc5381fd","name":"file_write","arguments":"{\"path\": \"note.txt\", \"content\": \"hello\"}"}],"finish":"calls","usage":{"input":123,"output":20,"cached":0,"cache_writes":0,"reasoning":0}}');
INSERT INTO "forge_messages" VALUES('run-9b86e90ae743',1,0,'[{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-j2o4kae1/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."},{"role":"user","text":"Say hello later."}]');
CREATE TABLE forge_questions (
	id TEXT NOT NULL, 
	run TEXT NOT NULL, 
	call TEXT NOT NULL, 
	tool TEXT NOT NULL, 
	digest TEXT NOT NULL, 
	request TEXT NOT NULL, 
	asked DOUBLE NOT NULL, 
	answer TEXT, 
	answered DOUBLE, 
	"by" TEXT NOT NULL, 
	always TEXT, 
	PRIMARY KEY (id)
);
INSERT INTO "forge_questions" VALUES('50b4ba5aca3d6bbf','run-fb88feef4acd','call_ce4573c63c68cc5381fd','file_write','4af30dfaa8d5e8d1ca7f243725aeb57e761435294879aa9aa43482922cb5ac68','{"tool":"file_write","description":"Create a file, or overwrite one that was read before. To change a part, use file_edit.","agent":"main","arguments":{"path":"note.txt","content":"hello"},"parts":[["write","note.txt"]],"reason":"no rule matches, and write asks by default","remember":"allow write note.txt","covers":["4dd5352d59036a160e524f56c8cadce7a024fae3306d01dabe8b3d4b1279956e"],"takes":{"parameters":{"type":"object","properties":{"path":{"examples":["notes.txt"],"type":"string"},"content":{"examples":["Hello\n"],"type":"string"}},"additionalProperties":false,"required":["path","content"]},"aliases":{"file_path":"path","filepath":"path","filename":"path","contents":"content","text":"content","file_text":"content"},"strict":false},"editable":true,"personal":false,"preview":"--- /dev/null\n+++ b/note.txt\n@@ -0,0 +1 @@\n+hello\n\\ No newline at end of file\n"}',1.79503774748779416081e+09,NULL,NULL,'',NULL);
CREATE TABLE forge_queues (
	name TEXT NOT NULL, 
	concurrency INTEGER, 
	calls INTEGER, 
	seconds DOUBLE, 
	per_tenant INTEGER, 
	PRIMARY KEY (name)
);
INSERT INTO "forge_queues" VALUES('default',20,NULL,NULL,5);
CREATE TABLE forge_runs (
	id TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	session TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	queue TEXT NOT NULL, 
	priority INTEGER NOT NULL, 
	version TEXT NOT NULL, 
	prompt TEXT NOT NULL, 
	status TEXT NOT NULL, 
	segment INTEGER NOT NULL, 
	waits TEXT NOT NULL, 
	spent TEXT NOT NULL, 
	scope TEXT NOT NULL, 
	carrier TEXT NOT NULL, 
	parent TEXT NOT NULL, 
	parent_call TEXT NOT NULL, 
	worker TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	updated DOUBLE NOT NULL, 
	cancelling BOOLEAN NOT NULL, 
	result TEXT, 
	look DOUBLE, 
	attempt TEXT NOT NULL, 
	waited DOUBLE DEFAULT '0' NOT NULL, 
	model TEXT DEFAULT '' NOT NULL, 
	user TEXT DEFAULT '' NOT NULL, 
	failure TEXT DEFAULT '' NOT NULL, 
	cost DOUBLE, 
	worked DOUBLE DEFAULT '0' NOT NULL, 
	input INTEGER DEFAULT '0' NOT NULL, 
	output INTEGER DEFAULT '0' NOT NULL, 
	cached INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "forge_runs" VALUES('run-278648ec737e','main','finished','','default',0,'0.2.0+ce6d3fb83804','Say hello.','finished',1,'[]','{"turns":1,"calls":0,"usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0},"priced":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"priced_cost":0.0,"cost":null,"seconds":0.016,"model":"","meta":{},"before":{},"waited":{}}','{"heard":0,"model":"scripted:talk.yaml"}','{}','','','machine.example-461-c5e95b',1.7950377441720333099e+09,1.79503774433238291741e+09,0,'{"text":"Hello.","reason":"answer","turns":1,"calls":0,"usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0},"estimated":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"cost":null,"has_output":false,"output":null,"error":null}',NULL,'3d032a85d2554b34a416136fcf66afd0',0.0,'scripted:talk.yaml','','',NULL,0.016,122,5,0);
INSERT INTO "forge_runs" VALUES('run-fb88feef4acd','main','waiting','','default',0,'0.2.0+ce6d3fb83804','Write a note.','waiting',1,'[{"kind":"approval","call":"call_ce4573c63c68cc5381fd","detail":{"question":"50b4ba5aca3d6bbf"}}]','{"turns":1,"calls":0,"usage":{"input":123,"output":20,"cached":0,"cache_writes":0,"reasoning":0},"priced":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"priced_cost":0.0,"cost":null,"seconds":0.102,"model":"","meta":{},"before":{},"waited":{}}','{"heard":0,"model":"scripted:write.yaml"}','{}','','','machine.example-628-46ce29',1.79503774720104169841e+09,1.79503774751172780988e+09,0,NULL,NULL,'d40a74b6d9064f10a544f25d7cb1149e',0.0,'scripted:write.yaml','','',NULL,0.102,123,20,0);
INSERT INTO "forge_runs" VALUES('run-9b86e90ae743','main','queued','','default',0,'0.2.0+ce6d3fb83804','Say hello later.','queued',1,'[]','{}','{"heard":0,"model":"scripted:talk.yaml"}','{}','','','',1.79503774945335221294e+09,1.79503774945335221294e+09,0,NULL,1.79503774945335221294e+09,'',0.0,'scripted:talk.yaml','','',NULL,0.0,0,0,0);
CREATE TABLE forge_segments (
	run TEXT NOT NULL, 
	segment INTEGER NOT NULL, 
	queue TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	priority INTEGER NOT NULL, 
	queued DOUBLE NOT NULL, 
	state TEXT NOT NULL, 
	worker TEXT NOT NULL, 
	starts INTEGER NOT NULL, 
	tries INTEGER NOT NULL, 
	counted DOUBLE, 
	PRIMARY KEY (run, segment)
);
INSERT INTO "forge_segments" VALUES('run-278648ec737e',1,'default','','["0.2.0+ce6d3fb83804", "main"]',1000000001,1.79503774423408818242e+09,'over','machine.example-461-c5e95b',1,1,NULL);
INSERT INTO "forge_segments" VALUES('run-fb88feef4acd',1,'default','','["0.2.0+ce6d3fb83804", "main"]',1000000001,1.79503774722546434409e+09,'over','machine.example-628-46ce29',1,1,NULL);
INSERT INTO "forge_segments" VALUES('run-9b86e90ae743',1,'default','','["0.2.0+ce6d3fb83804", "main"]',1000000001,1.79503774947206473349e+09,'queued','',0,0,NULL);
CREATE TABLE forge_workers (
	id TEXT NOT NULL, 
	host TEXT NOT NULL, 
	boot TEXT NOT NULL, 
	pid INTEGER NOT NULL, 
	started DOUBLE NOT NULL, 
	beat DOUBLE NOT NULL, 
	queues TEXT NOT NULL, 
	offers TEXT NOT NULL, 
	version TEXT NOT NULL, 
	concurrency INTEGER NOT NULL, 
	running INTEGER NOT NULL, 
	draining BOOLEAN NOT NULL, 
	gone DOUBLE, 
	claimed TEXT NOT NULL, 
	handed BOOLEAN NOT NULL, 
	agents TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "forge_workers" VALUES('machine.example-461-c5e95b','machine.example','fa59dab2-0bda-4d2a-9f3d-6d78735e1556/4026531836',461,1.79503774387599968911e+09,1.79503774387599968911e+09,'["default"]','[]','0.2.0+ce6d3fb83804',10,0,0,1.79503774442900419228e+09,'machine.example-461-c5e95b',1,'["main","main/general","main/reader"]');
INSERT INTO "forge_workers" VALUES('machine.example-628-46ce29','machine.example','fa59dab2-0bda-4d2a-9f3d-6d78735e1556/4026531836',628,1.79503774710301899908e+09,1.79503774710301899908e+09,'["default"]','[]','0.2.0+ce6d3fb83804',10,0,0,1.79503774764801716807e+09,'machine.example-628-46ce29',1,'["main","main/general","main/reader"]');
CREATE TABLE notifications (
    message_uuid TEXT NOT NULL DEFAULT (hex(randomblob(16))) PRIMARY KEY,
    destination_uuid TEXT NOT NULL,
    topic TEXT,
    message TEXT NOT NULL,
    created_at_epoch_ms INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000), "serialization" TEXT DEFAULT NULL, "consumed" BOOLEAN NOT NULL DEFAULT FALSE, consumed_by_function_id INTEGER,
    FOREIGN KEY (destination_uuid) REFERENCES workflow_status(workflow_uuid) 
        ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE "operation_outputs" (
    workflow_uuid TEXT NOT NULL,
    function_id INTEGER NOT NULL,
    function_name TEXT NOT NULL DEFAULT '',
    output TEXT,
    error TEXT,
    child_workflow_id TEXT,
    started_at_epoch_ms INTEGER,
    completed_at_epoch_ms INTEGER,
    serialization TEXT,
    application_name TEXT DEFAULT NULL,
    retention_timestamp INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000),
    PRIMARY KEY (workflow_uuid, function_id)
);
INSERT INTO "operation_outputs" VALUES('run-278648ec737e.1',1,'model','{"message":{"role":"assistant","text":"Hello.","finish":"stop","usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0}}}',NULL,NULL,1795037744320,1795037744322,'forge_json','forge',1795037744322);
INSERT INTO "operation_outputs" VALUES('run-fb88feef4acd.1',1,'model','{"message":{"role":"assistant","text":"I write it down.","tool_calls":[{"id":"call_ce4573c63c68cc5381fd","name":"file_write","arguments":"{\"path\": \"note.txt\", \"content\": \"hello\"}"}],"finish":"calls","usage":{"input":123,"output":20,"cached":0,"cache_writes":0,"reasoning":0}}}',NULL,NULL,1795037747405,1795037747410,'forge_json','forge',1795037747411);
INSERT INTO "operation_outputs" VALUES('run-fb88feef4acd.1',2,'call file_write','{"waiting":{"kind":"approval","question":"50b4ba5aca3d6bbf"},"message":"it waits for a person''s approval"}',NULL,NULL,1795037747413,1795037747494,'forge_json','forge',1795037747495);
CREATE TABLE queues (
    queue_id TEXT PRIMARY KEY DEFAULT (hex(randomblob(16))),
    name TEXT NOT NULL UNIQUE,
    concurrency INTEGER,
    worker_concurrency INTEGER,
    rate_limit_max INTEGER,
    rate_limit_period_sec REAL,
    priority_enabled BOOLEAN NOT NULL DEFAULT FALSE,
    partition_queue BOOLEAN NOT NULL DEFAULT FALSE,
    polling_interval_sec REAL NOT NULL DEFAULT 1.0,
    created_at INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000),
    updated_at INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000)
, "application_name" TEXT DEFAULT NULL, "partition_concurrency" INTEGER DEFAULT NULL, "partition_worker_concurrency" INTEGER DEFAULT NULL, "partition_rate_limit_max" INTEGER DEFAULT NULL, "partition_rate_limit_period_sec" REAL DEFAULT NULL);
CREATE TABLE streams (
    workflow_uuid TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    "offset" INTEGER NOT NULL, function_id INTEGER NOT NULL DEFAULT 0, "serialization" TEXT DEFAULT NULL,
    PRIMARY KEY (workflow_uuid, key, "offset"),
    FOREIGN KEY (workflow_uuid) REFERENCES workflow_status(workflow_uuid) 
        ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE workflow_events (
    workflow_uuid TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL, "serialization" TEXT DEFAULT NULL,
    PRIMARY KEY (workflow_uuid, key),
    FOREIGN KEY (workflow_uuid) REFERENCES workflow_status(workflow_uuid) 
        ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE workflow_events_history (
    workflow_uuid TEXT NOT NULL,
    function_id INTEGER NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL, "serialization" TEXT DEFAULT NULL,
    PRIMARY KEY (workflow_uuid, function_id, key),
    FOREIGN KEY (workflow_uuid) REFERENCES workflow_status(workflow_uuid)
        ON UPDATE CASCADE ON DELETE CASCADE
);
CREATE TABLE workflow_input (
    workflow_uuid TEXT NOT NULL PRIMARY KEY,
    inputs TEXT,
    retention_timestamp INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000)
);
INSERT INTO "workflow_input" VALUES('run-278648ec737e.1','{"args":["run-278648ec737e",1],"kwargs":{}}',1795037744000);
INSERT INTO "workflow_input" VALUES('run-fb88feef4acd.1','{"args":["run-fb88feef4acd",1],"kwargs":{}}',1795037747000);
CREATE TABLE workflow_output (
    workflow_uuid TEXT NOT NULL PRIMARY KEY,
    output TEXT,
    error TEXT,
    retention_timestamp INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000)
);
INSERT INTO "workflow_output" VALUES('run-278648ec737e.1','"finished"',NULL,1795037744000);
INSERT INTO "workflow_output" VALUES('run-fb88feef4acd.1','"waiting"',NULL,1795037747000);
CREATE TABLE workflow_schedules (
    schedule_id TEXT PRIMARY KEY,
    schedule_name TEXT NOT NULL UNIQUE,
    workflow_name TEXT NOT NULL,
    workflow_class_name TEXT,
    schedule TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'ACTIVE',
    context TEXT NOT NULL
, "last_fired_at" TEXT DEFAULT NULL, "automatic_backfill" BOOLEAN NOT NULL DEFAULT FALSE, "cron_timezone" TEXT DEFAULT NULL, "queue_name" TEXT DEFAULT NULL, "application_name" TEXT DEFAULT NULL);
CREATE TABLE workflow_status (
    workflow_uuid TEXT PRIMARY KEY,
    status TEXT,
    name TEXT,
    authenticated_user TEXT,
    assumed_role TEXT,
    authenticated_roles TEXT,
    request TEXT,
    output TEXT,
    error TEXT,
    executor_id TEXT,
    created_at INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000),
    updated_at INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000),
    application_version TEXT,
    application_id TEXT,
    class_name TEXT DEFAULT NULL,
    config_name TEXT DEFAULT NULL,
    recovery_attempts INTEGER DEFAULT 0,
    queue_name TEXT,
    workflow_timeout_ms INTEGER,
    workflow_deadline_epoch_ms INTEGER,
    inputs TEXT,
    started_at_epoch_ms INTEGER,
    deduplication_id TEXT,
    priority INTEGER NOT NULL DEFAULT 0
, queue_partition_key TEXT, forked_from TEXT, "owner_xid" TEXT DEFAULT NULL, "parent_workflow_id" TEXT DEFAULT NULL, "serialization" TEXT DEFAULT NULL, "delay_until_epoch_ms" BIGINT DEFAULT NULL, "was_forked_from" BOOLEAN NOT NULL DEFAULT FALSE, "rate_limited" BOOLEAN NOT NULL DEFAULT FALSE, "completed_at" BIGINT, "attributes" TEXT, "schedule_name" TEXT, "debounce_deadline_epoch_ms" BIGINT DEFAULT NULL, "is_debounced" BOOLEAN NOT NULL DEFAULT FALSE, "application_name" TEXT DEFAULT NULL, "creator_xid" TEXT DEFAULT NULL);
INSERT INTO "workflow_status" VALUES('run-278648ec737e.1','SUCCESS','forge_segment',NULL,NULL,NULL,NULL,NULL,NULL,'machine.example-461-c5e95b',1795037744000,1795037744000,'0.2.0+ce6d3fb83804','',NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,'forge_json',NULL,0,0,1795037744000,'null',NULL,NULL,0,'forge','4e7abd15-0c70-4cc3-9bb7-61c18c9bd621');
INSERT INTO "workflow_status" VALUES('run-fb88feef4acd.1','SUCCESS','forge_segment',NULL,NULL,NULL,NULL,NULL,NULL,'machine.example-628-46ce29',1795037747000,1795037747000,'0.2.0+ce6d3fb83804','',NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,'forge_json',NULL,0,0,1795037747000,'null',NULL,NULL,0,'forge','a9fbb5ca-da05-4247-a596-d2a21ef8b87e');
CREATE INDEX forge_runs_tenant ON forge_runs (tenant, created);
CREATE INDEX forge_runs_ended ON forge_runs (updated) WHERE parent = '';
CREATE INDEX forge_runs_status ON forge_runs (status, created);
CREATE INDEX forge_runs_created ON forge_runs (created);
CREATE INDEX forge_runs_roots ON forge_runs (created, id) WHERE parent = '';
CREATE INDEX forge_runs_look ON forge_runs (status, look);
CREATE INDEX forge_runs_parent ON forge_runs (parent) WHERE parent != '';
CREATE INDEX forge_runs_session ON forge_runs (session, created);
CREATE INDEX forge_segments_begun ON forge_segments (queue, tenant) WHERE state = 'begun';
CREATE INDEX forge_segments_counted ON forge_segments (queue, counted) WHERE counted IS NOT NULL;
CREATE INDEX forge_segments_worker ON forge_segments (worker) WHERE state = 'begun';
CREATE INDEX forge_segments_queued ON forge_segments (queue, priority, queued) WHERE state = 'queued';
CREATE INDEX forge_segments_tenants ON forge_segments (queue, tenant, priority, queued) WHERE state = 'queued';
CREATE INDEX forge_questions_asked ON forge_questions (asked);
CREATE INDEX forge_questions_always ON forge_questions (run) WHERE always IS NOT NULL;
CREATE INDEX forge_questions_run ON forge_questions (run);
CREATE INDEX forge_questions_open ON forge_questions (asked) WHERE answered IS NULL;
CREATE INDEX forge_events_run ON forge_events (run, number);
CREATE INDEX forge_workers_open ON forge_workers (gone) WHERE handed = 0;
CREATE INDEX forge_workers_beat ON forge_workers (beat) WHERE gone IS NULL;
CREATE INDEX workflow_status_created_at_index ON workflow_status (created_at);
CREATE INDEX idx_workflow_topic ON notifications (destination_uuid, topic);
CREATE INDEX "idx_workflow_status_delayed" ON "workflow_status" ("delay_until_epoch_ms") WHERE status = 'DELAYED';
CREATE INDEX "idx_workflow_status_forked_from" ON "workflow_status" ("forked_from") WHERE "forked_from" IS NOT NULL;
CREATE INDEX "idx_workflow_status_parent_workflow_id" ON "workflow_status" ("parent_workflow_id") WHERE "parent_workflow_id" IS NOT NULL;
CREATE UNIQUE INDEX "uq_workflow_status_dedup_id" ON "workflow_status" ("queue_name", "deduplication_id") WHERE "deduplication_id" IS NOT NULL;
CREATE INDEX "idx_workflow_status_pending" ON "workflow_status" ("created_at") WHERE "status" = 'PENDING';
CREATE INDEX "idx_workflow_status_failed" ON "workflow_status" ("status", "created_at") WHERE "status" IN ('ERROR', 'CANCELLED', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED');
CREATE INDEX "idx_workflow_status_rate_limited" ON "workflow_status" ("queue_name", "started_at_epoch_ms") WHERE "rate_limited" = TRUE;
CREATE INDEX "idx_workflow_status_completed_at" ON "workflow_status" ("completed_at") WHERE "completed_at" IS NOT NULL;
CREATE INDEX "idx_workflow_status_started_at" ON "workflow_status" ("started_at_epoch_ms") WHERE "started_at_epoch_ms" IS NOT NULL;
CREATE INDEX "idx_workflow_status_schedule_name" ON "workflow_status" ("schedule_name") WHERE "schedule_name" IS NOT NULL;
CREATE UNIQUE INDEX "uq_application_versions_owner_version"
    ON application_versions ("application_name", "version_name")
    WHERE "application_name" IS NOT NULL;
CREATE UNIQUE INDEX "uq_application_versions_unclaimed_version"
    ON application_versions ("version_name")
    WHERE "application_name" IS NULL;
CREATE INDEX idx_workflow_input_retention
    ON workflow_input (retention_timestamp);
CREATE INDEX idx_workflow_output_retention
    ON workflow_output (retention_timestamp);
CREATE INDEX idx_operation_outputs_retention
    ON operation_outputs (retention_timestamp);
CREATE INDEX "idx_workflow_status_in_flight_v2" ON "workflow_status" ("queue_name", "status", "priority", "created_at", "application_name") WHERE "status" IN ('ENQUEUED', 'PENDING');
CREATE INDEX "idx_workflow_status_partition_dequeue_v3" ON "workflow_status" ("queue_name", "status", "queue_partition_key", "priority", "created_at", "workflow_uuid", "application_name") WHERE "status" IN ('ENQUEUED', 'PENDING') AND "queue_partition_key" IS NOT NULL;
CREATE INDEX "idx_operation_outputs_completed_at_function_name_v2" ON "operation_outputs" ("completed_at_epoch_ms", "function_name", "application_name");
CREATE INDEX "idx_workflow_status_deadline" ON "workflow_status" ("workflow_deadline_epoch_ms") WHERE "status" IN ('ENQUEUED', 'PENDING', 'DELAYED') AND "workflow_deadline_epoch_ms" IS NOT NULL;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('forge_events',4);
COMMIT;
