/* shuffle_ext--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION shuffle_ext" to load this file. \quit

--
-- Catalog: one row per published segment
--

--
-- Table access method
--

--
-- Writing
--

--
-- Reading
--

--
-- Views: the offset index
--

--
-- Maintenance
--
