-- Settings: default, unit, range, when they may change, description.
LOAD 'shuffle_ext';
SELECT name, boot_val, unit, min_val, max_val, vartype, context
FROM pg_settings WHERE name LIKE 'shuffle\_ext.%' ORDER BY name COLLATE "C";
SELECT name FROM pg_settings
WHERE name LIKE 'shuffle\_ext.%' AND (short_desc = '' OR extra_desc = '');

-- units
SET shuffle_ext.memory_limit = '1GB';
SHOW shuffle_ext.memory_limit;
SET shuffle_ext.block_bytes = '512kB';
SHOW shuffle_ext.block_bytes;
SET shuffle_ext.write_buffer_size = 256;
SHOW shuffle_ext.write_buffer_size;
RESET shuffle_ext.memory_limit;
RESET shuffle_ext.block_bytes;
RESET shuffle_ext.write_buffer_size;

-- ranges; majors word the error differently
\set VERBOSITY sqlstate
SET shuffle_ext.partitions = 0;
SET shuffle_ext.partitions = 1000001;
SET shuffle_ext.memory_limit = '1kB';
SET shuffle_ext.memory_limit = '65GB';
SET shuffle_ext.block_rows = 0;
SET shuffle_ext.block_bytes = 0;
SET shuffle_ext.block_min_rows = 0;
SET shuffle_ext.write_buffer_size = 0;
SET shuffle_ext.inline_size = -1;
SET shuffle_ext.inline_size = '65kB';
SET shuffle_ext.sync = maybe;
\set VERBOSITY default

-- codecs
SET shuffle_ext.codec = 'none';
SET shuffle_ext.codec = 'LZ4:12';
SET shuffle_ext.codec = 'zstd:-7';
SET shuffle_ext.codec = 'zstd:22';
SET shuffle_ext.codec = '';
SET shuffle_ext.codec = 'gzip';
SET shuffle_ext.codec = 'none:1';
SET shuffle_ext.codec = 'lz4:';
SET shuffle_ext.codec = 'lz4:0';
SET shuffle_ext.codec = 'lz4:13';
SET shuffle_ext.codec = 'lz4:1 ';
SET shuffle_ext.codec = 'zstd:0';
SET shuffle_ext.codec = 'zstd:99999999999999999999';
SHOW shuffle_ext.codec;
RESET shuffle_ext.codec;

-- the directory is the administrator's: by configuration file and reload
SET shuffle_ext.directory = '/tmp';
ALTER ROLE CURRENT_USER SET shuffle_ext.directory = '/tmp';
ALTER SYSTEM SET shuffle_ext.directory = 'relative/path';
CREATE ROLE regress_shuffle_nobody;
SET ROLE regress_shuffle_nobody;
\set VERBOSITY sqlstate
SHOW shuffle_ext.directory;
\set VERBOSITY default
RESET ROLE;
DROP ROLE regress_shuffle_nobody;

-- a misspelt name is an error
SET shuffle_ext.blockrows = 1;
