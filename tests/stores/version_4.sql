-- A SQLite store of schema version 4: that of version 3, brought to version 4.
BEGIN TRANSACTION;
CREATE TABLE checkpoints (
	id VARCHAR(32) NOT NULL, 
	handle VARCHAR(256) NOT NULL, 
	job VARCHAR(256) NOT NULL, 
	run VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, interrupts INTEGER DEFAULT '0' NOT NULL, calls INTEGER DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "checkpoints" VALUES('a6c80afaec2f7e557d8b993471214947','alice','job','r0','{"page":3}',0,0);
CREATE TABLE deaths (
	run VARCHAR(64) NOT NULL, 
	count INTEGER NOT NULL, 
	PRIMARY KEY (run)
);
CREATE TABLE events (
	seq INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	run VARCHAR(64), 
	event TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "events" VALUES(1,1700000000.25,'r0','{"type":"run_state_changed","seq":1,"at":1700000000.25,"by":"test","run":"r0","handle":"alice","lane":"main","from":null,"to":"queued","attempt":0,"reason":null,"place":1,"job":"job","kind":"start"}');
INSERT INTO "events" VALUES(2,1700000000.25,'r0','{"type":"run_state_changed","seq":2,"at":1700000000.25,"by":"test","run":"r0","handle":"alice","lane":"main","from":"queued","to":"running","attempt":1,"reason":null,"place":1}');
INSERT INTO "events" VALUES(3,1700000000.25,'r0','{"type":"run_state_changed","seq":3,"at":1700000000.25,"by":"test","run":"r0","handle":"alice","lane":"main","from":"running","to":"succeeded","attempt":1,"reason":null,"place":1,"result":{"pages":3}}');
INSERT INTO "events" VALUES(4,1700000000.25,'r1','{"type":"run_state_changed","seq":4,"at":1700000000.25,"by":"test","run":"r1","handle":"handle of r1","lane":"main","from":null,"to":"queued","attempt":0,"reason":null,"place":7,"job":"job","kind":"start","params":{"n":1}}');
INSERT INTO "events" VALUES(5,1700000000.25,'r1','{"type":"run_waiting","seq":5,"at":1700000000.25,"by":"test","run":"r1","handle":"handle of r1","lane":"main","waited":2.5,"ahead":1,"blockers":["other"]}');
INSERT INTO "events" VALUES(6,1700000000.25,'r1','{"type":"run_state_changed","seq":6,"at":1700000000.25,"by":"test","run":"r1","handle":"handle of r1","lane":"main","from":"queued","to":"running","attempt":1,"reason":null,"place":7,"interactive":true}');
INSERT INTO "events" VALUES(7,1700000000.25,'r1','{"type":"run_changed","seq":7,"at":1700000000.25,"by":"test","run":"r1","handle":"handle of r1","lane":"main","streaming":true}');
INSERT INTO "events" VALUES(9,1700000000.25,'r1','{"type":"run_log","seq":9,"at":1700000000.25,"by":"test","run":"r1","handle":"handle of r1","lane":"main","attempt":1,"text":"a line","level":"info"}');
INSERT INTO "events" VALUES(10,1700000000.25,'r1','{"type":"run_message","seq":10,"at":1700000000.25,"by":"test","run":"r1","handle":"handle of r1","lane":"main","message":{"text":"hello"}}');
INSERT INTO "events" VALUES(11,1700000000.25,'r1','{"type":"interrupt_opened","seq":11,"at":1700000000.25,"by":"test","run":"r1","handle":"handle of r1","lane":"main","interrupt":"r1.1","key":"1","data":{"ask":"?"},"deadline":1700000060.25}');
INSERT INTO "events" VALUES(12,1700000000.25,'r1','{"type":"interrupt_closed","seq":12,"at":1700000000.25,"by":"test","run":"r1","handle":"handle of r1","lane":"main","interrupt":"r1.1","outcome":"answered","answer":{"approved":true}}');
INSERT INTO "events" VALUES(13,1700000000.25,'r1','{"type":"interrupt_opened","seq":13,"at":1700000000.25,"by":"test","run":"r1","handle":"handle of r1","lane":"main","interrupt":"r1.2","key":"two","data":null,"deadline":null}');
INSERT INTO "events" VALUES(14,1700000000.25,NULL,'{"type":"lane_changed","seq":14,"at":1700000000.25,"by":"test","lane":"uploads","limit":2,"generation":1}');
INSERT INTO "events" VALUES(15,1700000000.25,NULL,'{"type":"handle_changed","seq":15,"at":1700000000.25,"by":"test","handle":"alice","params":{"draft":1}}');
INSERT INTO "events" VALUES(16,1700000000.25,NULL,'{"type":"engine_changed","seq":16,"at":1700000000.25,"by":"test","max_concurrent":5,"draining":true}');
INSERT INTO "events" VALUES(17,1700000000.25,'r1','{"type":"run_state_changed","seq":17,"at":1700000000.25,"by":"test","run":"r1","handle":"handle of r1","lane":"main","from":"running","to":"suspended","attempt":1,"reason":"time","place":7,"waiting_for":"time"}');
INSERT INTO "events" VALUES(18,1700000000.25,'r2','{"type":"run_state_changed","seq":18,"at":1700000000.25,"by":"test","run":"r2","handle":"Ünïcödé 漢字","lane":"uploads","from":null,"to":"queued","attempt":0,"reason":null,"place":8,"job":"job","kind":"start","params":[true,null,0.5]}');
CREATE TABLE files (
	id VARCHAR(32) NOT NULL, 
	run VARCHAR(64) NOT NULL, 
	path TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "files" VALUES('fa618d6e81c8bd7c354f0ea3709be636','r0','a/b.jpg');
INSERT INTO "files" VALUES('d0662225aa15941ffe17e50e07acfc28','r1','c.txt');
CREATE TABLE flow_runs (
	run VARCHAR(64) NOT NULL, 
	version VARCHAR(64) NOT NULL, 
	numbered INTEGER NOT NULL, 
	state TEXT NOT NULL, 
	PRIMARY KEY (run)
);
CREATE TABLE flow_versions (
	id VARCHAR(64) NOT NULL, 
	flow VARCHAR(64) NOT NULL, 
	version INTEGER NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	definition TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE flows (
	id VARCHAR(64) NOT NULL, 
	record TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE handles (
	name VARCHAR(256) NOT NULL, 
	params TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "handles" VALUES('alice','{"draft":1}');
CREATE TABLE held (
	handle VARCHAR(256) NOT NULL, 
	run VARCHAR(64) NOT NULL, 
	PRIMARY KEY (handle)
);
CREATE TABLE interrupts (
	id VARCHAR(80) NOT NULL, 
	run VARCHAR(64) NOT NULL, 
	question TEXT NOT NULL, 
	closed TEXT, 
	PRIMARY KEY (id)
);
INSERT INTO "interrupts" VALUES('r1.1','r1','{"id":"r1.1","run":"r1","key":"1","data":{"ask":"?"},"opened_at":1700000000.25,"deadline":1700000060.25,"outcome":null,"answer":null}','{"type":"interrupt_closed","seq":12,"at":1700000000.25,"by":"test","run":"r1","handle":"handle of r1","lane":"main","interrupt":"r1.1","outcome":"answered","answer":{"approved":true}}');
INSERT INTO "interrupts" VALUES('r1.2','r1','{"id":"r1.2","run":"r1","key":"two","data":null,"opened_at":1700000000.25,"deadline":null,"outcome":null,"answer":null}',NULL);
CREATE TABLE lanes (
	name VARCHAR(256) NOT NULL, 
	slots INTEGER, 
	generation INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "lanes" VALUES('uploads',2,1);
CREATE TABLE leases (
	name VARCHAR(64) NOT NULL, 
	holder VARCHAR(256), 
	term BIGINT NOT NULL, 
	address TEXT, 
	expires_at DOUBLE NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE messages (
	seq INTEGER NOT NULL, 
	run VARCHAR(64) NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (seq)
);
INSERT INTO "messages" VALUES(10,'r1','{"text":"hello"}');
CREATE TABLE meta (
	id INTEGER NOT NULL, 
	schema_version INTEGER NOT NULL, 
	epoch VARCHAR(32) NOT NULL, 
	engine VARCHAR(32), 
	holder VARCHAR(256), 
	last_seq BIGINT NOT NULL, 
	max_concurrent INTEGER, 
	draining BOOLEAN NOT NULL, last_place BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "meta" VALUES(1,4,'0123456789abcdef','00000000000000000000000000000000','process 1 on a machine',18,5,1,8);
CREATE TABLE node_runs (
	run VARCHAR(64) NOT NULL, 
	number INTEGER NOT NULL, 
	record TEXT NOT NULL, 
	PRIMARY KEY (run, number)
);
CREATE TABLE requests (
	request_id VARCHAR(256) NOT NULL, 
	run VARCHAR(64) NOT NULL, 
	fingerprint VARCHAR(32), 
	PRIMARY KEY (request_id)
);
INSERT INTO "requests" VALUES('once','r1','ffffffffffffffffffffffffffffffff');
CREATE TABLE runs (
	id VARCHAR(64) NOT NULL, 
	handle VARCHAR(256) NOT NULL, 
	lane VARCHAR(256) NOT NULL, 
	status VARCHAR(16) NOT NULL, 
	place BIGINT, 
	created_seq BIGINT NOT NULL, 
	ended_seq BIGINT, 
	ended_at DOUBLE, 
	wakes_at DOUBLE, 
	files_doomed BOOLEAN NOT NULL, 
	terms TEXT NOT NULL, 
	record TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "runs" VALUES('r0','alice','main','succeeded',1,1,3,1700000000.25,NULL,0,'{}','{"id":"r0","handle":"alice","lane":"main","job":"job","kind":"start","params":null,"status":"succeeded","reason":null,"attempt":1,"place":1,"detached":false,"interactive":false,"streaming":false,"compacting":false,"waiting_for":null,"progress":null,"result":{"pages":3},"error":null,"created_at":1700000000.25,"started_at":1700000000.25,"ended_at":1700000000.25,"updated_at":1700000000.25}');
INSERT INTO "runs" VALUES('r1','handle of r1','main','suspended',7,4,NULL,NULL,1700000060.75,0,'{"request_id":"once","fingerprint":"ffffffffffffffffffffffffffffffff"}','{"id":"r1","handle":"handle of r1","lane":"main","job":"job","kind":"start","params":{"n":1},"status":"suspended","reason":"time","attempt":1,"place":7,"detached":false,"interactive":true,"streaming":true,"compacting":false,"waiting_for":"time","progress":{"done":1,"total":3,"mood":"good"},"result":null,"error":null,"created_at":1700000000.25,"started_at":1700000000.25,"ended_at":null,"updated_at":1700000000.25}');
INSERT INTO "runs" VALUES('r2','Ünïcödé 漢字','uploads','queued',8,18,NULL,NULL,NULL,0,'{}','{"id":"r2","handle":"Ünïcödé 漢字","lane":"uploads","job":"job","kind":"start","params":[true,null,0.5],"status":"queued","reason":null,"attempt":0,"place":8,"detached":false,"interactive":false,"streaming":false,"compacting":false,"waiting_for":null,"progress":null,"result":null,"error":null,"created_at":1700000000.25,"started_at":null,"ended_at":null,"updated_at":1700000000.25}');
CREATE TABLE workers (
	id VARCHAR(32) NOT NULL, 
	record TEXT NOT NULL, 
	PRIMARY KEY (id)
);
CREATE INDEX runs_by_lane ON runs (lane, id);
CREATE INDEX runs_by_handle ON runs (handle, id);
CREATE INDEX interrupts_by_run ON interrupts (run);
CREATE INDEX files_by_run ON files (run);
CREATE INDEX requests_by_run ON requests (run);
CREATE UNIQUE INDEX flow_versions_by_number ON flow_versions (flow, version);
CREATE INDEX flow_runs_by_version ON flow_runs (version, run);
CREATE INDEX checkpoints_by_run ON checkpoints (run);
CREATE INDEX events_by_run ON events (run, seq);
CREATE INDEX messages_by_run ON messages (run, seq);
CREATE INDEX runs_by_end ON runs (ended_seq) WHERE ended_seq IS NOT NULL;
CREATE INDEX runs_by_status ON runs (status, id) WHERE status <> 'succeeded';
COMMIT;
