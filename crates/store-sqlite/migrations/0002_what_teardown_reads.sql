-- Teardown runs with the config that was dispatched last, so that one stays until it has run.
ALTER TABLE config ADD COLUMN former INTEGER NOT NULL DEFAULT 0;
ALTER TABLE resource ADD COLUMN finalizer_config TEXT;
CREATE INDEX resource_finalizer_config ON resource (finalizer_config, uid) WHERE finalizer_config IS NOT NULL;
