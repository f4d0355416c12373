PRAGMA user_version = 0;
BEGIN TRANSACTION;
CREATE TABLE application_versions (
    version_id TEXT NOT NULL PRIMARY KEY,
    version_name TEXT NOT NULL UNIQUE,
    version_timestamp INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000),
    created_at INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000)
, "application_name" TEXT DEFAULT NULL);
INSERT INTO "application_versions" VALUES('ebcf153e-4c0d-48ef-9fde-3e90f4b3dc2b','0.2.0+ce6d3fb83804',1795052238000,1795052238000,'forge');
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
INSERT INTO "forge_events" VALUES(1,'run-83c7e0ff7700',1,3,X'0103062A52A963851AA2483288DC666A606A64646CA167626064696C6A0A0D5E43E4E0454AE268A10C2C63720B40FCE0C44A858CD49C9C7C3DA55A2E502983960721052E365B2D8C4D2CA0961A116729347B7AC0ACC3C8A686C464532427585A1A9A9A40DD604CA41BC099D71033F31A1A1921B2AF2909D9B71600');
INSERT INTO "forge_events" VALUES(2,'run-83c7e0ff7700',1,1,X'0103062AA8D481A758D420459642E4375303532323630B3D134303634B436368009B2007309226EC79C5233527275F4F490751B825E61597A71641D339C822CC846E68648448EAA6A42575608C422420891E52B0C1C34507E4558887752D8C93CD530DD2D2CCCD81C10354032C4E73210594412D00');
INSERT INTO "forge_events" VALUES(3,'run-8a63cc4af0f4',1,3,X'018D544B0AC32014DCF714E2BA0435EA33BD414FD08D9BB4151A48932E84144AEEDEA711F25DB8F3F18419C799415117AD73592BBAD8CC69534C092179610437606492972FE51DEAC60793ED44C68A797FC27C0B9E2435E97AEF0A3A9E42CF6C523855EE11AE025341C21559B829A05712B3401A4F9EFDD005E003E7C7A3528E7306508204C9DCE35E569097889968A9B9D63A11955944F72E3C22B2494E7CD4DAA1F46763782C1ADFD2A8B2FF7A4BCF38E1F77BBC35AD5EAE6D7B4B4774F11F');
INSERT INTO "forge_events" VALUES(4,'run-8a63cc4af0f4',1,3,X'01CD564D6F842014FC2B844BDB646378288BFA3B7AE4621B52498D26BB6CF7D0F8DFFB405BF0A329DE7A13C5976166DE1B90D4688C34D77774AD3FBD101A804999CB42164CBFBEE495ACBD95EA7EB03AB368F988FC7591D09D8209CE0BC82A06C0016639442CC7BD31D6993241943D582B2379904BC1E8A7F25E52E80345BFF12B7AC215B26171D7F4A9D55D37283A3AA2C2911CC4B9E834C3F1C50F09A8F6CD6B804F836DF565E67CB89837D3FBC58E777FE738C1D381532E7905C5CCE9F9FF73BA0CA04DA31C85B32EB7CCBBB893C26F8F47713FD5C458E2F8BC122C481A97E938461F42DEABFEB9D52EBE89AB607ACC7E726F75EF7E34B8EDA331989B9DCE52FB39AD9DFF82454FCB0B838BFAFDAB422AFCD5FCA89814509E250E12602594E33602212502234397550E6236B44C32F4948BB0CD45E07948467E241AC72F');
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
INSERT INTO "forge_messages" VALUES('run-83c7e0ff7700',1,0,'[{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-85trzk4g/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."},{"role":"user","text":"Say hello."}]');
INSERT INTO "forge_messages" VALUES('run-83c7e0ff7700',2,0,'{"role":"assistant","text":"Hello.","finish":"stop","usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0}}');
INSERT INTO "forge_messages" VALUES('run-8a63cc4af0f4',1,0,'[{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-85trzk4g/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."},{"role":"user","text":"Write a note."}]');
INSERT INTO "forge_messages" VALUES('run-8a63cc4af0f4',2,0,'{"role":"assistant","text":"I write it down.","tool_calls":[{"id":"call_55e11077374740ecb397","name":"file_write","arguments":"{\"path\": \"note.txt\", \"content\": \"hello\"}"}],"finish":"calls","usage":{"input":123,"output":20,"cached":0,"cache_writes":0,"reasoning":0}}');
INSERT INTO "forge_messages" VALUES('run-e67556c50df8',1,0,'[{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-85trzk4g/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."},{"role":"user","text":"Say hello later."}]');
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
INSERT INTO "forge_questions" VALUES('be07e8cea025426e','run-8a63cc4af0f4','call_55e11077374740ecb397','file_write','4af30dfaa8d5e8d1ca7f243725aeb57e761435294879aa9aa43482922cb5ac68','{"tool":"file_write","description":"Create a file, or overwrite one that was read before. To change a part, use file_edit.","agent":"main","arguments":{"path":"note.txt","content":"hello"},"parts":[["write","note.txt"]],"reason":"no rule matches, and write asks by default","remember":"allow write note.txt","covers":["e49b14e2b5ddb28697ae8a72f4e3c5bfa2c34ca459c66b6950811172be315734"],"takes":{"parameters":{"type":"object","properties":{"path":{"examples":["notes.txt"],"type":"string"},"content":{"examples":["Hello\n"],"type":"string"}},"additionalProperties":false,"required":["path","content"]},"aliases":{"file_path":"path","filepath":"path","filename":"path","contents":"content","text":"content","file_text":"content"},"strict":false},"editable":true,"personal":false,"preview":"--- /dev/null\n+++ b/note.txt\n@@ -0,0 +1 @@\n+hello\n\\ No newline at end of file\n"}',1.79505224191513705254e+09,NULL,NULL,'',NULL);
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
INSERT INTO "forge_runs" VALUES('run-83c7e0ff7700','main','finished','','default',0,'0.2.0+ce6d3fb83804','Say hello.','finished',1,'[]','{"version":1,"turns":1,"calls":0,"usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0},"priced":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"priced_cost":0.0,"seconds":0.011,"before":{"turns":0,"calls":0,"usage":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"priced":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"priced_cost":0.0,"seconds":0.0},"cost":null,"model":"","meta":{},"waited":{}}','{"heard":0,"model":"scripted:talk.yaml"}','{}','','','machine.example-32491-2da389',1.79505223833272862434e+09,1.79505223841728281971e+09,0,'{"text":"Hello.","reason":"answer","turns":1,"calls":0,"usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0},"estimated":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"cost":null,"has_output":false,"output":null,"error":null}',NULL,'c1f11711a43f422886d5d1c0b0e46cbf',0.0,'scripted:talk.yaml','','',NULL,0.011,122,5,0);
INSERT INTO "forge_runs" VALUES('run-8a63cc4af0f4','main','waiting','','default',0,'0.2.0+ce6d3fb83804','Write a note.','waiting',1,'[{"kind":"approval","call":"call_55e11077374740ecb397","detail":{"question":"be07e8cea025426e"}}]','{"version":1,"turns":1,"calls":0,"usage":{"input":123,"output":20,"cached":0,"cache_writes":0,"reasoning":0},"priced":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"priced_cost":0.0,"seconds":0.121,"before":{"turns":0,"calls":0,"usage":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"priced":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"priced_cost":0.0,"seconds":0.0},"cost":null,"model":"","meta":{},"waited":{}}','{"heard":0,"model":"scripted:write.yaml"}','{}','','','machine.example-513-44eef3',1.79505224159395956992e+09,1.79505224193839597705e+09,0,NULL,NULL,'fb4ffb0913b84c52b8ce7458f6f91cec',0.0,'scripted:write.yaml','','',NULL,0.121,123,20,0);
INSERT INTO "forge_runs" VALUES('run-e67556c50df8','main','queued','','default',0,'0.2.0+ce6d3fb83804','Say hello later.','queued',1,'[]','{}','{"heard":0,"model":"scripted:talk.yaml"}','{}','','','',1.79505224376475262639e+09,1.79505224376475262639e+09,0,NULL,1.79505224376475262639e+09,'',0.0,'scripted:talk.yaml','','',NULL,0.0,0,0,0);
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
INSERT INTO "forge_segments" VALUES('run-83c7e0ff7700',1,'default','','["0.2.0+ce6d3fb83804", "main"]',1000000001,1.79505223834349179274e+09,'over','machine.example-32491-2da389',1,1,NULL);
INSERT INTO "forge_segments" VALUES('run-8a63cc4af0f4',1,'default','','["0.2.0+ce6d3fb83804", "main"]',1000000001,1.79505224164141201975e+09,'over','machine.example-513-44eef3',1,1,NULL);
INSERT INTO "forge_segments" VALUES('run-e67556c50df8',1,'default','','["0.2.0+ce6d3fb83804", "main"]',1000000001,1.79505224379576277735e+09,'queued','',0,0,NULL);
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
INSERT INTO "forge_workers" VALUES('machine.example-32491-2da389','machine.example','bc784fc9-7dd4-4ffb-8a2f-105f17230297/4026531836',32491,1.79505223815598201754e+09,1.79505223815598201754e+09,'["default"]','[]','0.2.0+ce6d3fb83804',10,0,0,1.79505223846400690079e+09,'machine.example-32491-2da389',1,'["main","main/general","main/reader"]');
INSERT INTO "forge_workers" VALUES('machine.example-513-44eef3','machine.example','bc784fc9-7dd4-4ffb-8a2f-105f17230297/4026531836',513,1.79505224138501286506e+09,1.79505224138501286506e+09,'["default"]','[]','0.2.0+ce6d3fb83804',10,0,0,1.79505224201699495312e+09,'machine.example-513-44eef3',1,'["main","main/general","main/reader"]');
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
INSERT INTO "operation_outputs" VALUES('run-83c7e0ff7700.1',1,'model','{"message":{"role":"assistant","text":"Hello.","finish":"stop","usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0}}}',NULL,NULL,1795052238407,1795052238408,'forge_json','forge',1795052238408);
INSERT INTO "operation_outputs" VALUES('run-8a63cc4af0f4.1',1,'model','{"message":{"role":"assistant","text":"I write it down.","tool_calls":[{"id":"call_55e11077374740ecb397","name":"file_write","arguments":"{\"path\": \"note.txt\", \"content\": \"hello\"}"}],"finish":"calls","usage":{"input":123,"output":20,"cached":0,"cache_writes":0,"reasoning":0}}}',NULL,NULL,1795052241823,1795052241826,'forge_json','forge',1795052241831);
INSERT INTO "operation_outputs" VALUES('run-8a63cc4af0f4.1',2,'call file_write','{"waiting":{"kind":"approval","question":"be07e8cea025426e"},"message":"it waits for a person''s approval"}',NULL,NULL,1795052241835,1795052241927,'forge_json','forge',1795052241927);
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
INSERT INTO "workflow_input" VALUES('run-83c7e0ff7700.1','{"args":["run-83c7e0ff7700",1],"kwargs":{}}',1795052238000);
INSERT INTO "workflow_input" VALUES('run-8a63cc4af0f4.1','{"args":["run-8a63cc4af0f4",1],"kwargs":{}}',1795052241000);
CREATE TABLE workflow_output (
    workflow_uuid TEXT NOT NULL PRIMARY KEY,
    output TEXT,
    error TEXT,
    retention_timestamp INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000)
);
INSERT INTO "workflow_output" VALUES('run-83c7e0ff7700.1','"finished"',NULL,1795052238000);
INSERT INTO "workflow_output" VALUES('run-8a63cc4af0f4.1','"waiting"',NULL,1795052241000);
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
INSERT INTO "workflow_status" VALUES('run-83c7e0ff7700.1','SUCCESS','forge_segment',NULL,NULL,NULL,NULL,NULL,NULL,'machine.example-32491-2da389',1795052238000,1795052238000,'0.2.0+ce6d3fb83804','',NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,'forge_json',NULL,0,0,1795052238000,'null',NULL,NULL,0,'forge','f879b384-2271-4ef7-9411-921cb2f5b08e');
INSERT INTO "workflow_status" VALUES('run-8a63cc4af0f4.1','SUCCESS','forge_segment',NULL,NULL,NULL,NULL,NULL,NULL,'machine.example-513-44eef3',1795052241000,1795052241000,'0.2.0+ce6d3fb83804','',NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,'forge_json',NULL,0,0,1795052241000,'null',NULL,NULL,0,'forge','44079363-d8a0-4eba-bdec-77d7b7208e3b');
CREATE INDEX forge_runs_status ON forge_runs (status, created);
CREATE INDEX forge_runs_look ON forge_runs (status, look);
CREATE INDEX forge_runs_created ON forge_runs (created);
CREATE INDEX forge_runs_tenant ON forge_runs (tenant, created);
CREATE INDEX forge_runs_session ON forge_runs (session, created);
CREATE INDEX forge_runs_roots ON forge_runs (created, id) WHERE parent = '';
CREATE INDEX forge_runs_ended ON forge_runs (updated) WHERE parent = '';
CREATE INDEX forge_runs_parent ON forge_runs (parent) WHERE parent != '';
CREATE INDEX forge_segments_queued ON forge_segments (queue, priority, queued) WHERE state = 'queued';
CREATE INDEX forge_segments_worker ON forge_segments (worker) WHERE state = 'begun';
CREATE INDEX forge_segments_begun ON forge_segments (queue, tenant) WHERE state = 'begun';
CREATE INDEX forge_segments_tenants ON forge_segments (queue, tenant, priority, queued) WHERE state = 'queued';
CREATE INDEX forge_segments_counted ON forge_segments (queue, counted) WHERE counted IS NOT NULL;
CREATE INDEX forge_questions_asked ON forge_questions (asked);
CREATE INDEX forge_questions_always ON forge_questions (run) WHERE always IS NOT NULL;
CREATE INDEX forge_questions_open ON forge_questions (asked) WHERE answered IS NULL;
CREATE INDEX forge_questions_run ON forge_questions (run);
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
