/*
 * flatbuf_tables.h
 *	  Slot numbers, union members and enum values of the Arrow flatbuffers, shared by
 *	  the builder and the parsers.
 *
 * Source: apache/arrow format/Schema.fbs, Message.fbs, File.fbs (MetadataVersion V5).
 * A union takes two slots: its member number, then its table.
 */
#ifndef SHF_FLATBUF_TABLES_H
#define SHF_FLATBUF_TABLES_H

#define FB_VERSION_V5 4

/* Message */
#define FB_MESSAGE_VERSION	   0
#define FB_MESSAGE_HEADER_TYPE 1
#define FB_MESSAGE_HEADER	   2
#define FB_MESSAGE_BODY_LENGTH 3
#define FB_MESSAGE_METADATA	   4

#define FB_HEADER_SCHEMA	   1
#define FB_HEADER_RECORD_BATCH 3

/* Schema */
#define FB_SCHEMA_ENDIANNESS 0 /* 0 = little, the default */
#define FB_SCHEMA_FIELDS	 1
#define FB_SCHEMA_METADATA	 2
#define FB_SCHEMA_FEATURES	 3

/* KeyValue */
#define FB_KEYVALUE_KEY	  0
#define FB_KEYVALUE_VALUE 1

/* Field */
#define FB_FIELD_NAME		0
#define FB_FIELD_NULLABLE	1
#define FB_FIELD_TYPE_TYPE	2
#define FB_FIELD_TYPE		3
#define FB_FIELD_DICTIONARY 4
#define FB_FIELD_CHILDREN	5
#define FB_FIELD_METADATA	6

/* Members of the union Type that we use */
#define FB_TYPE_NONE			   0
#define FB_TYPE_INT				   2
#define FB_TYPE_FLOAT			   3
#define FB_TYPE_BINARY			   4
#define FB_TYPE_UTF8			   5
#define FB_TYPE_BOOL			   6
#define FB_TYPE_DECIMAL			   7
#define FB_TYPE_DATE			   8
#define FB_TYPE_TIME			   9
#define FB_TYPE_TIMESTAMP		   10
#define FB_TYPE_INTERVAL		   11
#define FB_TYPE_LIST			   12
#define FB_TYPE_STRUCT			   13
#define FB_TYPE_FIXED_BINARY	   15

#define FB_INT_BITWIDTH			   0
#define FB_INT_SIGNED			   1
#define FB_FLOAT_PRECISION		   0
#define FB_FLOAT_SINGLE			   1
#define FB_FLOAT_DOUBLE			   2
#define FB_DECIMAL_PRECISION	   0
#define FB_DECIMAL_SCALE		   1
#define FB_DECIMAL_BITWIDTH		   2 /* default 128 */
#define FB_DATE_UNIT			   0 /* default MILLISECOND */
#define FB_DATE_DAY				   0
#define FB_DATE_MILLISECOND		   1
#define FB_TIME_UNIT			   0 /* default MILLISECOND */
#define FB_TIME_BITWIDTH		   1 /* default 32 */
#define FB_TIMESTAMP_UNIT		   0 /* default SECOND */
#define FB_TIMESTAMP_ZONE		   1
#define FB_UNIT_SECOND			   0
#define FB_UNIT_MILLISECOND		   1
#define FB_UNIT_MICROSECOND		   2
#define FB_INTERVAL_UNIT		   0 /* default YEAR_MONTH */
#define FB_INTERVAL_MONTH_DAY_NANO 2
#define FB_FIXED_WIDTH			   0

#define FB_ZONE_UTC				   "UTC"

/* RecordBatch */
#define FB_BATCH_LENGTH		 0
#define FB_BATCH_NODES		 1
#define FB_BATCH_BUFFERS	 2
#define FB_BATCH_COMPRESSION 3

/* BodyCompression */
#define FB_COMPRESSION_CODEC  0 /* default LZ4_FRAME */
#define FB_COMPRESSION_METHOD 1 /* 0 = BUFFER, the default and only one */
#define FB_CODEC_LZ4_FRAME	  0
#define FB_CODEC_ZSTD		  1

/* Footer */
#define FB_FOOTER_VERSION	   0
#define FB_FOOTER_SCHEMA	   1
#define FB_FOOTER_DICTIONARIES 2
#define FB_FOOTER_BATCHES	   3

#endif /* SHF_FLATBUF_TABLES_H */
