PRAGMA user_version = 0;
BEGIN TRANSACTION;
CREATE TABLE application_versions (
    version_id TEXT NOT NULL PRIMARY KEY,
    version_name TEXT NOT NULL UNIQUE,
    version_timestamp INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000),
    created_at INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000)
, "application_name" TEXT DEFAULT NULL);
INSERT INTO "application_versions" VALUES('ffb8bb93-2bc7-4bc5-891c-16e9d1cd9bf0','0.1.0+ce6d3fb83804',1795035287000,1795035287000,'forge');
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
INSERT INTO "forge_events" VALUES(1,'run-37d20ef7cf67',1,3,X'0103062A52A963851AA2483288DC666A606C6A6461A967616E66606A66020D5E43E4E0454AE268A10C2C63720B40FCE0C44A858CD49C9C7C3DA55A2E502983960721052EA6AD961646161646C6505B8D88B3159A3F3D60F661E4534362F229921B2C8CCD611E3726D209E0CC6B8899790D8D8C10D9D79484EC5B0B00');
INSERT INTO "forge_events" VALUES(2,'run-37d20ef7cf67',1,1,X'0103062AA8D481A758D420459642E43753036353230B4B3D4B0B4B0363637368009B2007309226EC79C5233527275F4F490751B825E61597A71641D339C822CC846E68648448EAA6A42575608C422420891E52B0C1C34507E4558887758DCD538C0C52D3CC93D3CCCC8112A0E23417524019D40200');
INSERT INTO "forge_events" VALUES(3,'run-16706aebf513',1,2,X'0103062A52A963851AA2483288DC666A606C6A6C60A26769686C640A0D5C43E4C02D4FCC2C0125318C20061630B905207E3828452A242AE4E597A4EA29D572814A19B43C082970D16D35D53330333636333382DA6B4494BDD0ECE9A900CE090A99250A29F9E579408B01');
INSERT INTO "forge_events" VALUES(4,'run-16706aebf513',1,2,X'01C312F360A65972B2A5A5895992A141BC217129C1D2D4C0D8D4D8C054CFD0C8DCCCC8D2181AEE26C8E15E9E9859024A7D44843EB203D0520A3841A3C68852750C38B1C400233A46292FBF2455AFA4A224464907C8037AB704A80A2295919A93931FA354AB04495048456862713630C7627A1E6C9B15CC48E49040D78C1914C6168606268616D0A0301DAC41A183E41590D3A08642EA2BA000DCF3C0945D0A4E6F40567E49466A11347DE51765A667E68139B500');
INSERT INTO "forge_events" VALUES(5,'run-16706aebf513',1,2,X'019595CB0A833010457F2564D31644F230C6F43BBA0C142B010362170DB550FCF74E54303EA071A7984CC63B27F76E441D1EF2AA522ACB1F94DC698CC84A102E3811A9282427C524791E4ADE95D679F022840F4F5F4132B0BC1C06FEEA81130D33D6B87D3A93BA8FD3388137F85307ABC64FB5699AA7C63D0EE735E9B81A586C1BEB324BBF0D27396F3B1FEDF77245D621AFDF0B414154FA4C816B7C9AF346B7B7DAF8F840BE826D217B50579BD66FB4B0EC5D5AF0EDC6A4B13CC5E1F4AF2D9C2C03CB47CD7E54C5B6BFE437138A712909534A15928AACDF5AF09ADF5D0B0EF8858A7CE25746F13BDA32DDDA32657C366676C499FB1F');
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
INSERT INTO "forge_messages" VALUES('run-37d20ef7cf67',1,0,'[{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-w45yg45x/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."},{"role":"user","text":"Say hello."}]');
INSERT INTO "forge_messages" VALUES('run-37d20ef7cf67',2,0,'{"role":"assistant","text":"Hello.","finish":"stop","usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0}}');
INSERT INTO "forge_messages" VALUES('run-16706aebf513',1,0,'[{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-w45yg45x/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."},{"role":"user","text":"Write a note."}]');
INSERT INTO "forge_messages" VALUES('run-16706aebf513',2,0,'{"role":"assistant","text":"I write it down.","tool_calls":[{"id":"call_6cc9946b10_1","name":"file_write","arguments":"{\"path\": \"note.txt\", \"content\": \"hello\"}"}],"finish":"calls","usage":{"input":123,"output":20,"cached":0,"cache_writes":0,"reasoning":0}}');
INSERT INTO "forge_messages" VALUES('run-3505363838ce',1,0,'[{"role":"system","text":"You are an agent that works for a person at their command line. Your tools work in the directory /tmp/forge-stored-w45yg45x/project.\nIf you do not know something, use your tools to find out; do not guess. Do what was asked and no more, and\ncheck that it worked. A failed call says why: try another way, and do not repeat a refused call.\nWhen you are done, answer briefly, in plain text: what you found or did, and what is left to do.\n\nYou keep notes."},{"role":"user","text":"Say hello later."}]');
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
INSERT INTO "forge_questions" VALUES('bc1638dce344c122','run-16706aebf513','call_6cc9946b10_1','file_write','4af30dfaa8d5e8d1ca7f243725aeb57e761435294879aa9aa43482922cb5ac68','{"tool":"file_write","description":"Create a file, or overwrite one that was read before. To change a part, use file_edit.","agent":"main","arguments":{"path":"note.txt","content":"hello"},"parts":[["write","note.txt"]],"reason":"no rule matches, and write asks by default","remember":"allow write note.txt","covers":["db91c2c82f63705a94ea52aa645e02d6f152ca376ecef8a77c2f7bd3002c9676"],"takes":{"parameters":{"type":"object","properties":{"path":{"examples":["notes.txt"],"type":"string"},"content":{"examples":["Hello\n"],"type":"string"}},"additionalProperties":false,"required":["path","content"]},"aliases":{"file_path":"path","filepath":"path","filename":"path","contents":"content","text":"content","file_text":"content"},"strict":false},"editable":true,"personal":false,"preview":"--- /dev/null\n+++ b/note.txt\n@@ -0,0 +1 @@\n+hello\n\\ No newline at end of file\n"}',1.79503530555979752538e+09,NULL,NULL,'',NULL);
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
INSERT INTO "forge_runs" VALUES('run-37d20ef7cf67','main','finished','','default',0,'0.1.0+ce6d3fb83804','Say hello.','finished',1,'[]','{"turns":1,"calls":0,"usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0},"priced":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"priced_cost":0.0,"cost":null,"seconds":0.163,"model":"","meta":{},"before":{},"waited":{}}','{"heard":0,"model":"scripted:talk.yaml"}','{}','','','machine.example-25749-761058',1.79503528914874029161e+09,1.79503529000051307673e+09,0,'{"text":"Hello.","reason":"answer","turns":1,"calls":0,"usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0},"estimated":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"cost":null,"has_output":false,"output":null,"error":null}',NULL,'f27aaba5dcd84fe3892fd2d877a8066f',0.0,'scripted:talk.yaml','','',NULL,0.163,122,5,0);
INSERT INTO "forge_runs" VALUES('run-16706aebf513','main','waiting','','default',0,'0.1.0+ce6d3fb83804','Write a note.','waiting',1,'[{"kind":"approval","call":"call_6cc9946b10_1","detail":{"question":"bc1638dce344c122"}}]','{"turns":1,"calls":0,"usage":{"input":123,"output":20,"cached":0,"cache_writes":0,"reasoning":0},"priced":{"input":0,"output":0,"cached":0,"cache_writes":0,"reasoning":0},"priced_cost":0.0,"cost":null,"seconds":0.706,"model":"","meta":{},"before":{},"waited":{}}','{"heard":0,"model":"scripted:write.yaml"}','{}','','','machine.example-26494-b6a215',1.79503530397277188306e+09,1.79503530576313757895e+09,0,NULL,NULL,'ddfa7c4ab91e46a8843ce57c3eccd182',0.0,'scripted:write.yaml','','',NULL,0.706,123,20,0);
INSERT INTO "forge_runs" VALUES('run-3505363838ce','main','queued','','default',0,'0.1.0+ce6d3fb83804','Say hello later.','queued',1,'[]','{}','{"heard":0,"model":"scripted:talk.yaml"}','{}','','','',1.79503531816732215878e+09,1.79503531816732215878e+09,0,NULL,1.79503531816732215878e+09,'',0.0,'scripted:talk.yaml','','',NULL,0.0,0,0,0);
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
INSERT INTO "forge_segments" VALUES('run-37d20ef7cf67',1,'default','','["0.1.0+ce6d3fb83804", "main"]',1000000001,1.79503528936673283577e+09,'over','machine.example-25749-761058',1,1,NULL);
INSERT INTO "forge_segments" VALUES('run-16706aebf513',1,'default','','["0.1.0+ce6d3fb83804", "main"]',1000000001,1.79503530409468173983e+09,'over','machine.example-26494-b6a215',1,1,NULL);
INSERT INTO "forge_segments" VALUES('run-3505363838ce',1,'default','','["0.1.0+ce6d3fb83804", "main"]',1000000001,1.79503531825404524799e+09,'queued','',0,0,NULL);
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
INSERT INTO "forge_workers" VALUES('machine.example-25749-761058','machine.example','fa59dab2-0bda-4d2a-9f3d-6d78735e1556/4026531836',25749,1.79503528685299611092e+09,1.7950352889849901199e+09,'["default"]','[]','0.1.0+ce6d3fb83804',10,0,0,1.79503529022400975232e+09,'machine.example-25749-761058',1,'["main","main/general","main/reader"]');
INSERT INTO "forge_workers" VALUES('machine.example-26494-b6a215','machine.example','fa59dab2-0bda-4d2a-9f3d-6d78735e1556/4026531836',26494,1.79503530343399643901e+09,1.79503530555098342897e+09,'["default"]','[]','0.1.0+ce6d3fb83804',10,0,0,1.79503530617998838421e+09,'machine.example-26494-b6a215',1,'["main","main/general","main/reader"]');
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
INSERT INTO "operation_outputs" VALUES('run-37d20ef7cf67.1',1,'model','{"message":{"role":"assistant","text":"Hello.","finish":"stop","usage":{"input":122,"output":5,"cached":0,"cache_writes":0,"reasoning":0}}}',NULL,NULL,1795035289959,1795035289983,'forge_json','forge',1795035289986);
INSERT INTO "operation_outputs" VALUES('run-16706aebf513.1',1,'model','{"message":{"role":"assistant","text":"I write it down.","tool_calls":[{"id":"call_6cc9946b10_1","name":"file_write","arguments":"{\"path\": \"note.txt\", \"content\": \"hello\"}"}],"finish":"calls","usage":{"input":123,"output":20,"cached":0,"cache_writes":0,"reasoning":0}}}',NULL,NULL,1795035305028,1795035305063,'forge_json','forge',1795035305078);
INSERT INTO "operation_outputs" VALUES('run-16706aebf513.1',2,'call file_write','{"waiting":{"kind":"approval","question":"bc1638dce344c122"},"message":"it waits for a person''s approval"}',NULL,NULL,1795035305127,1795035305587,'forge_json','forge',1795035305588);
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
INSERT INTO "workflow_input" VALUES('run-37d20ef7cf67.1','{"args":["run-37d20ef7cf67",1],"kwargs":{}}',1795035289000);
INSERT INTO "workflow_input" VALUES('run-16706aebf513.1','{"args":["run-16706aebf513",1],"kwargs":{}}',1795035304000);
CREATE TABLE workflow_output (
    workflow_uuid TEXT NOT NULL PRIMARY KEY,
    output TEXT,
    error TEXT,
    retention_timestamp INTEGER NOT NULL DEFAULT (strftime('%s','now') * 1000)
);
INSERT INTO "workflow_output" VALUES('run-37d20ef7cf67.1','"finished"',NULL,1795035290000);
INSERT INTO "workflow_output" VALUES('run-16706aebf513.1','"waiting"',NULL,1795035306000);
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
INSERT INTO "workflow_status" VALUES('run-37d20ef7cf67.1','SUCCESS','forge_segment',NULL,NULL,NULL,NULL,NULL,NULL,'machine.example-25749-761058',1795035289000,1795035290000,'0.1.0+ce6d3fb83804','',NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,'forge_json',NULL,0,0,1795035290000,'null',NULL,NULL,0,'forge','549c1b4a-8708-4534-b1cf-93c345a98e3c');
INSERT INTO "workflow_status" VALUES('run-16706aebf513.1','SUCCESS','forge_segment',NULL,NULL,NULL,NULL,NULL,NULL,'machine.example-26494-b6a215',1795035304000,1795035305000,'0.1.0+ce6d3fb83804','',NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,'forge_json',NULL,0,0,1795035305000,'null',NULL,NULL,0,'forge','3f71c0da-a7f6-4510-968b-d47f3ea0fec1');
CREATE INDEX forge_runs_session ON forge_runs (session, created);
CREATE INDEX forge_runs_created ON forge_runs (created);
CREATE INDEX forge_runs_roots ON forge_runs (created, id) WHERE parent = '';
CREATE INDEX forge_runs_ended ON forge_runs (updated) WHERE parent = '';
CREATE INDEX forge_runs_parent ON forge_runs (parent) WHERE parent != '';
CREATE INDEX forge_runs_status ON forge_runs (status, created);
CREATE INDEX forge_runs_look ON forge_runs (status, look);
CREATE INDEX forge_runs_tenant ON forge_runs (tenant, created);
CREATE INDEX forge_segments_worker ON forge_segments (worker) WHERE state = 'begun';
CREATE INDEX forge_segments_queued ON forge_segments (queue, priority, queued) WHERE state = 'queued';
CREATE INDEX forge_segments_tenants ON forge_segments (queue, tenant, priority, queued) WHERE state = 'queued';
CREATE INDEX forge_segments_begun ON forge_segments (queue, tenant) WHERE state = 'begun';
CREATE INDEX forge_segments_counted ON forge_segments (queue, counted) WHERE counted IS NOT NULL;
CREATE INDEX forge_questions_run ON forge_questions (run);
CREATE INDEX forge_questions_asked ON forge_questions (asked);
CREATE INDEX forge_questions_always ON forge_questions (run) WHERE always IS NOT NULL;
CREATE INDEX forge_questions_open ON forge_questions (asked) WHERE answered IS NULL;
CREATE INDEX forge_events_run ON forge_events (run, number);
CREATE INDEX forge_workers_beat ON forge_workers (beat) WHERE gone IS NULL;
CREATE INDEX forge_workers_open ON forge_workers (gone) WHERE handed = 0;
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
INSERT INTO "sqlite_sequence" VALUES('forge_events',5);
COMMIT;
