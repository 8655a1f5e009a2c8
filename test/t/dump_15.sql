SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE EXTENSION IF NOT EXISTS shuffle_ext WITH SCHEMA public;
COMMENT ON EXTENSION shuffle_ext IS 'partition any query or table in parallel into compressed Arrow blocks with an SQL offset index';
SET default_tablespace = '';
CREATE TABLE public.parent (
    id integer
)
PARTITION BY LIST (id);
SET default_table_access_method = shuffle;
CREATE TABLE public.child (
    id integer
);
CREATE TABLE public.files (
    id integer,
    k integer
);
SECURITY LABEL FOR shuffle_ext ON TABLE public.files IS 'partitions=4 method=range keys=1 layout=partition_files codec=none types=arrow unrepresentable=error bounds={100,200,300}';
SECURITY LABEL FOR shuffle_ext ON COLUMN public.files.k IS 'key=1';
CREATE TABLE public.hashed (
    id integer,
    day integer,
    filler text
);
SECURITY LABEL FOR shuffle_ext ON TABLE public.hashed IS 'partitions=16 method=hash keys=2 hash=postgres layout=log codec=zstd types=arrow unrepresentable=error';
SECURITY LABEL FOR shuffle_ext ON COLUMN public.hashed.id IS 'key=2';
SECURITY LABEL FOR shuffle_ext ON COLUMN public.hashed.day IS 'key=1';
SET default_table_access_method = heap;
CREATE TABLE public.in_heap (
    id integer
);
SECURITY LABEL FOR shuffle_ext ON TABLE public.in_heap IS 'partitions=3 method=round_robin layout=log codec=lz4 types=arrow unrepresentable=error';
SET default_table_access_method = shuffle;
CREATE TABLE public.ranged (
    id integer
);
SECURITY LABEL FOR shuffle_ext ON TABLE public.ranged IS 'partitions=3 method=range keys=1 layout=log codec=lz4 types=arrow unrepresentable=error bounds={100,200}';
SECURITY LABEL FOR shuffle_ext ON COLUMN public.ranged.id IS 'key=1';
CREATE MATERIALIZED VIEW public.summary AS
 SELECT files.k,
    count(*) AS id
   FROM public.files
  GROUP BY files.k
  WITH NO DATA;
CREATE TABLE public."without options" (
    a integer
);
ALTER TABLE ONLY public.parent ATTACH PARTITION public.child FOR VALUES IN (1, 2);
COPY public.child (id) FROM stdin;
1
2
\.
COPY public.files (id, k) FROM stdin;
1	1
2	2
3	3
4	4
5	5
6	6
7	7
8	8
9	9
10	10
11	11
12	12
13	13
14	14
15	15
16	16
17	17
18	18
19	19
20	20
21	21
22	22
23	23
24	24
25	25
26	26
27	27
28	28
29	29
30	30
31	31
32	32
33	33
34	34
35	35
36	36
37	37
38	38
39	39
40	40
41	41
42	42
43	43
44	44
45	45
46	46
47	47
48	48
49	49
50	50
51	51
52	52
53	53
54	54
55	55
56	56
57	57
58	58
59	59
60	60
61	61
62	62
63	63
64	64
65	65
66	66
67	67
68	68
69	69
70	70
71	71
72	72
73	73
74	74
75	75
76	76
77	77
78	78
79	79
80	80
81	81
82	82
83	83
84	84
85	85
86	86
87	87
88	88
89	89
90	90
91	91
92	92
93	93
94	94
95	95
96	96
97	97
98	98
99	99
100	100
101	101
102	102
103	103
104	104
105	105
106	106
107	107
108	108
109	109
110	110
111	111
112	112
113	113
114	114
115	115
116	116
117	117
118	118
119	119
120	120
121	121
122	122
123	123
124	124
125	125
126	126
127	127
128	128
129	129
130	130
131	131
132	132
133	133
134	134
135	135
136	136
137	137
138	138
139	139
140	140
141	141
142	142
143	143
144	144
145	145
146	146
147	147
148	148
149	149
150	150
151	151
152	152
153	153
154	154
155	155
156	156
157	157
158	158
159	159
160	160
161	161
162	162
163	163
164	164
165	165
166	166
167	167
168	168
169	169
170	170
171	171
172	172
173	173
174	174
175	175
176	176
177	177
178	178
179	179
180	180
181	181
182	182
183	183
184	184
185	185
186	186
187	187
188	188
189	189
190	190
191	191
192	192
193	193
194	194
195	195
196	196
197	197
198	198
199	199
200	200
201	201
202	202
203	203
204	204
205	205
206	206
207	207
208	208
209	209
210	210
211	211
212	212
213	213
214	214
215	215
216	216
217	217
218	218
219	219
220	220
221	221
222	222
223	223
224	224
225	225
226	226
227	227
228	228
229	229
230	230
231	231
232	232
233	233
234	234
235	235
236	236
237	237
238	238
239	239
240	240
241	241
242	242
243	243
244	244
245	245
246	246
247	247
248	248
249	249
250	250
251	251
252	252
253	253
254	254
255	255
256	256
257	257
258	258
259	259
260	260
261	261
262	262
263	263
264	264
265	265
266	266
267	267
268	268
269	269
270	270
271	271
272	272
273	273
274	274
275	275
276	276
277	277
278	278
279	279
280	280
281	281
282	282
283	283
284	284
285	285
286	286
287	287
288	288
289	289
290	290
291	291
292	292
293	293
294	294
295	295
296	296
297	297
298	298
299	299
300	300
301	301
302	302
303	303
304	304
305	305
306	306
307	307
308	308
309	309
310	310
311	311
312	312
313	313
314	314
315	315
316	316
317	317
318	318
319	319
320	320
321	321
322	322
323	323
324	324
325	325
326	326
327	327
328	328
329	329
330	330
331	331
332	332
333	333
334	334
335	335
336	336
337	337
338	338
339	339
340	340
341	341
342	342
343	343
344	344
345	345
346	346
347	347
348	348
349	349
350	350
351	351
352	352
353	353
354	354
355	355
356	356
357	357
358	358
359	359
360	360
361	361
362	362
363	363
364	364
365	365
366	366
367	367
368	368
369	369
370	370
371	371
372	372
373	373
374	374
375	375
376	376
377	377
378	378
379	379
380	380
381	381
382	382
383	383
384	384
385	385
386	386
387	387
388	388
389	389
390	390
391	391
392	392
393	393
394	394
395	395
396	396
397	397
398	398
399	399
400	400
\.
COPY public.hashed (id, day, filler) FROM stdin;
11	4	xxxxxxxxxx
16	2	xxxxxxxxxx
30	2	xxxxxxxxxx
82	5	xxxxxxxxxx
101	3	xxxxxxxxxx
116	4	xxxxxxxxxx
148	1	xxxxxxxxxx
159	5	xxxxxxxxxx
162	1	xxxxxxxxxx
173	5	xxxxxxxxxx
219	2	xxxxxxxxxx
224	0	xxxxxxxxxx
228	4	xxxxxxxxxx
237	6	xxxxxxxxxx
247	2	xxxxxxxxxx
257	5	xxxxxxxxxx
283	3	xxxxxxxxxx
286	6	xxxxxxxxxx
295	1	xxxxxxxxxx
313	5	xxxxxxxxxx
324	2	xxxxxxxxxx
331	2	xxxxxxxxxx
392	0	xxxxxxxxxx
397	5	xxxxxxxxxx
400	1	xxxxxxxxxx
37	2	xxxxxxxxxx
63	0	xxxxxxxxxx
88	4	xxxxxxxxxx
99	1	xxxxxxxxxx
100	2	xxxxxxxxxx
117	5	xxxxxxxxxx
123	4	xxxxxxxxxx
184	2	xxxxxxxxxx
199	3	xxxxxxxxxx
201	5	xxxxxxxxxx
207	4	xxxxxxxxxx
263	4	xxxxxxxxxx
298	4	xxxxxxxxxx
303	2	xxxxxxxxxx
354	4	xxxxxxxxxx
357	0	xxxxxxxxxx
371	0	xxxxxxxxxx
372	1	xxxxxxxxxx
378	0	xxxxxxxxxx
15	1	xxxxxxxxxx
23	2	xxxxxxxxxx
61	5	xxxxxxxxxx
89	5	xxxxxxxxxx
90	6	xxxxxxxxxx
94	3	xxxxxxxxxx
106	1	xxxxxxxxxx
111	6	xxxxxxxxxx
115	3	xxxxxxxxxx
147	0	xxxxxxxxxx
157	3	xxxxxxxxxx
200	4	xxxxxxxxxx
211	1	xxxxxxxxxx
217	0	xxxxxxxxxx
221	4	xxxxxxxxxx
235	4	xxxxxxxxxx
272	6	xxxxxxxxxx
274	1	xxxxxxxxxx
342	6	xxxxxxxxxx
348	5	xxxxxxxxxx
367	3	xxxxxxxxxx
368	4	xxxxxxxxxx
398	6	xxxxxxxxxx
14	0	xxxxxxxxxx
18	4	xxxxxxxxxx
25	4	xxxxxxxxxx
54	5	xxxxxxxxxx
58	2	xxxxxxxxxx
64	1	xxxxxxxxxx
65	2	xxxxxxxxxx
73	3	xxxxxxxxxx
119	0	xxxxxxxxxx
134	1	xxxxxxxxxx
138	5	xxxxxxxxxx
144	4	xxxxxxxxxx
153	6	xxxxxxxxxx
163	2	xxxxxxxxxx
166	5	xxxxxxxxxx
172	4	xxxxxxxxxx
176	1	xxxxxxxxxx
183	1	xxxxxxxxxx
188	6	xxxxxxxxxx
189	0	xxxxxxxxxx
204	1	xxxxxxxxxx
229	5	xxxxxxxxxx
234	3	xxxxxxxxxx
238	0	xxxxxxxxxx
239	1	xxxxxxxxxx
256	4	xxxxxxxxxx
267	1	xxxxxxxxxx
339	3	xxxxxxxxxx
344	1	xxxxxxxxxx
350	0	xxxxxxxxxx
365	1	xxxxxxxxxx
382	4	xxxxxxxxxx
21	0	xxxxxxxxxx
78	1	xxxxxxxxxx
97	6	xxxxxxxxxx
98	0	xxxxxxxxxx
142	2	xxxxxxxxxx
154	0	xxxxxxxxxx
156	2	xxxxxxxxxx
171	3	xxxxxxxxxx
182	0	xxxxxxxxxx
185	3	xxxxxxxxxx
193	4	xxxxxxxxxx
227	3	xxxxxxxxxx
264	5	xxxxxxxxxx
271	5	xxxxxxxxxx
278	5	xxxxxxxxxx
279	6	xxxxxxxxxx
319	4	xxxxxxxxxx
332	3	xxxxxxxxxx
333	4	xxxxxxxxxx
337	1	xxxxxxxxxx
345	2	xxxxxxxxxx
346	3	xxxxxxxxxx
355	5	xxxxxxxxxx
358	1	xxxxxxxxxx
363	6	xxxxxxxxxx
364	0	xxxxxxxxxx
9	2	xxxxxxxxxx
24	3	xxxxxxxxxx
27	6	xxxxxxxxxx
42	0	xxxxxxxxxx
43	1	xxxxxxxxxx
72	2	xxxxxxxxxx
74	4	xxxxxxxxxx
77	0	xxxxxxxxxx
84	0	xxxxxxxxxx
122	3	xxxxxxxxxx
131	5	xxxxxxxxxx
133	0	xxxxxxxxxx
139	6	xxxxxxxxxx
160	6	xxxxxxxxxx
168	0	xxxxxxxxxx
202	6	xxxxxxxxxx
203	0	xxxxxxxxxx
222	5	xxxxxxxxxx
225	1	xxxxxxxxxx
230	6	xxxxxxxxxx
232	1	xxxxxxxxxx
236	5	xxxxxxxxxx
270	4	xxxxxxxxxx
276	3	xxxxxxxxxx
290	3	xxxxxxxxxx
308	0	xxxxxxxxxx
321	6	xxxxxxxxxx
326	4	xxxxxxxxxx
340	4	xxxxxxxxxx
370	6	xxxxxxxxxx
376	5	xxxxxxxxxx
385	0	xxxxxxxxxx
393	1	xxxxxxxxxx
2	2	xxxxxxxxxx
4	4	xxxxxxxxxx
20	6	xxxxxxxxxx
41	6	xxxxxxxxxx
51	2	xxxxxxxxxx
57	1	xxxxxxxxxx
69	6	xxxxxxxxxx
76	6	xxxxxxxxxx
87	3	xxxxxxxxxx
93	2	xxxxxxxxxx
96	5	xxxxxxxxxx
103	5	xxxxxxxxxx
105	0	xxxxxxxxxx
109	4	xxxxxxxxxx
110	5	xxxxxxxxxx
129	3	xxxxxxxxxx
135	2	xxxxxxxxxx
136	3	xxxxxxxxxx
137	4	xxxxxxxxxx
150	3	xxxxxxxxxx
170	2	xxxxxxxxxx
178	3	xxxxxxxxxx
198	2	xxxxxxxxxx
231	0	xxxxxxxxxx
240	2	xxxxxxxxxx
246	1	xxxxxxxxxx
262	3	xxxxxxxxxx
280	0	xxxxxxxxxx
287	0	xxxxxxxxxx
291	4	xxxxxxxxxx
315	0	xxxxxxxxxx
325	3	xxxxxxxxxx
366	2	xxxxxxxxxx
377	6	xxxxxxxxxx
396	4	xxxxxxxxxx
83	6	xxxxxxxxxx
91	0	xxxxxxxxxx
102	4	xxxxxxxxxx
104	6	xxxxxxxxxx
112	0	xxxxxxxxxx
155	1	xxxxxxxxxx
158	4	xxxxxxxxxx
164	3	xxxxxxxxxx
209	6	xxxxxxxxxx
220	3	xxxxxxxxxx
223	6	xxxxxxxxxx
251	6	xxxxxxxxxx
268	2	xxxxxxxxxx
269	3	xxxxxxxxxx
292	5	xxxxxxxxxx
304	3	xxxxxxxxxx
310	2	xxxxxxxxxx
311	3	xxxxxxxxxx
312	4	xxxxxxxxxx
318	3	xxxxxxxxxx
347	4	xxxxxxxxxx
360	3	xxxxxxxxxx
383	5	xxxxxxxxxx
386	1	xxxxxxxxxx
6	6	xxxxxxxxxx
33	5	xxxxxxxxxx
36	1	xxxxxxxxxx
40	5	xxxxxxxxxx
55	6	xxxxxxxxxx
56	0	xxxxxxxxxx
59	3	xxxxxxxxxx
66	3	xxxxxxxxxx
95	4	xxxxxxxxxx
108	3	xxxxxxxxxx
114	2	xxxxxxxxxx
120	1	xxxxxxxxxx
124	5	xxxxxxxxxx
161	0	xxxxxxxxxx
181	6	xxxxxxxxxx
190	1	xxxxxxxxxx
213	3	xxxxxxxxxx
218	1	xxxxxxxxxx
245	0	xxxxxxxxxx
248	3	xxxxxxxxxx
253	1	xxxxxxxxxx
258	6	xxxxxxxxxx
273	0	xxxxxxxxxx
275	2	xxxxxxxxxx
317	2	xxxxxxxxxx
323	1	xxxxxxxxxx
338	2	xxxxxxxxxx
341	5	xxxxxxxxxx
387	2	xxxxxxxxxx
389	4	xxxxxxxxxx
10	3	xxxxxxxxxx
32	4	xxxxxxxxxx
49	0	xxxxxxxxxx
60	4	xxxxxxxxxx
62	6	xxxxxxxxxx
67	4	xxxxxxxxxx
81	4	xxxxxxxxxx
113	1	xxxxxxxxxx
126	0	xxxxxxxxxx
140	0	xxxxxxxxxx
141	1	xxxxxxxxxx
151	4	xxxxxxxxxx
174	6	xxxxxxxxxx
177	2	xxxxxxxxxx
186	4	xxxxxxxxxx
197	1	xxxxxxxxxx
252	0	xxxxxxxxxx
284	4	xxxxxxxxxx
299	5	xxxxxxxxxx
305	4	xxxxxxxxxx
314	6	xxxxxxxxxx
379	1	xxxxxxxxxx
381	3	xxxxxxxxxx
391	6	xxxxxxxxxx
7	0	xxxxxxxxxx
19	5	xxxxxxxxxx
29	1	xxxxxxxxxx
118	6	xxxxxxxxxx
127	1	xxxxxxxxxx
206	3	xxxxxxxxxx
243	5	xxxxxxxxxx
244	6	xxxxxxxxxx
255	3	xxxxxxxxxx
265	6	xxxxxxxxxx
285	5	xxxxxxxxxx
301	0	xxxxxxxxxx
328	6	xxxxxxxxxx
334	5	xxxxxxxxxx
380	2	xxxxxxxxxx
3	3	xxxxxxxxxx
26	5	xxxxxxxxxx
28	0	xxxxxxxxxx
31	3	xxxxxxxxxx
34	6	xxxxxxxxxx
38	3	xxxxxxxxxx
39	4	xxxxxxxxxx
50	1	xxxxxxxxxx
53	4	xxxxxxxxxx
71	1	xxxxxxxxxx
86	2	xxxxxxxxxx
167	6	xxxxxxxxxx
191	2	xxxxxxxxxx
216	6	xxxxxxxxxx
233	2	xxxxxxxxxx
282	2	xxxxxxxxxx
289	2	xxxxxxxxxx
294	0	xxxxxxxxxx
300	6	xxxxxxxxxx
302	1	xxxxxxxxxx
316	1	xxxxxxxxxx
352	2	xxxxxxxxxx
362	5	xxxxxxxxxx
373	2	xxxxxxxxxx
8	1	xxxxxxxxxx
17	3	xxxxxxxxxx
35	0	xxxxxxxxxx
44	2	xxxxxxxxxx
45	3	xxxxxxxxxx
46	4	xxxxxxxxxx
70	0	xxxxxxxxxx
79	2	xxxxxxxxxx
92	1	xxxxxxxxxx
107	2	xxxxxxxxxx
130	4	xxxxxxxxxx
132	6	xxxxxxxxxx
169	1	xxxxxxxxxx
192	3	xxxxxxxxxx
195	6	xxxxxxxxxx
196	0	xxxxxxxxxx
205	2	xxxxxxxxxx
249	4	xxxxxxxxxx
259	0	xxxxxxxxxx
260	1	xxxxxxxxxx
288	1	xxxxxxxxxx
293	6	xxxxxxxxxx
296	2	xxxxxxxxxx
297	3	xxxxxxxxxx
309	1	xxxxxxxxxx
327	5	xxxxxxxxxx
335	6	xxxxxxxxxx
349	6	xxxxxxxxxx
399	0	xxxxxxxxxx
13	6	xxxxxxxxxx
47	5	xxxxxxxxxx
48	6	xxxxxxxxxx
75	5	xxxxxxxxxx
146	6	xxxxxxxxxx
165	4	xxxxxxxxxx
187	5	xxxxxxxxxx
214	4	xxxxxxxxxx
215	5	xxxxxxxxxx
241	3	xxxxxxxxxx
266	0	xxxxxxxxxx
336	0	xxxxxxxxxx
353	3	xxxxxxxxxx
374	3	xxxxxxxxxx
375	4	xxxxxxxxxx
390	5	xxxxxxxxxx
394	2	xxxxxxxxxx
5	5	xxxxxxxxxx
22	1	xxxxxxxxxx
52	3	xxxxxxxxxx
68	5	xxxxxxxxxx
80	3	xxxxxxxxxx
128	2	xxxxxxxxxx
143	3	xxxxxxxxxx
145	5	xxxxxxxxxx
149	2	xxxxxxxxxx
175	0	xxxxxxxxxx
212	2	xxxxxxxxxx
226	2	xxxxxxxxxx
250	5	xxxxxxxxxx
261	2	xxxxxxxxxx
281	1	xxxxxxxxxx
320	5	xxxxxxxxxx
322	0	xxxxxxxxxx
329	0	xxxxxxxxxx
356	6	xxxxxxxxxx
359	2	xxxxxxxxxx
369	5	xxxxxxxxxx
388	3	xxxxxxxxxx
395	3	xxxxxxxxxx
1	1	xxxxxxxxxx
12	5	xxxxxxxxxx
85	1	xxxxxxxxxx
121	2	xxxxxxxxxx
125	6	xxxxxxxxxx
152	5	xxxxxxxxxx
179	4	xxxxxxxxxx
180	5	xxxxxxxxxx
194	5	xxxxxxxxxx
208	5	xxxxxxxxxx
210	0	xxxxxxxxxx
242	4	xxxxxxxxxx
254	2	xxxxxxxxxx
277	4	xxxxxxxxxx
306	5	xxxxxxxxxx
307	6	xxxxxxxxxx
330	1	xxxxxxxxxx
343	0	xxxxxxxxxx
351	1	xxxxxxxxxx
361	4	xxxxxxxxxx
384	6	xxxxxxxxxx
\.
COPY public.in_heap (id) FROM stdin;
3
6
9
12
15
18
21
24
27
30
33
36
39
42
45
48
51
54
57
60
63
66
69
72
75
78
81
84
87
90
93
96
99
1
4
7
10
13
16
19
22
25
28
31
34
37
40
43
46
49
52
55
58
61
64
67
70
73
76
79
82
85
88
91
94
97
100
2
5
8
11
14
17
20
23
26
29
32
35
38
41
44
47
50
53
56
59
62
65
68
71
74
77
80
83
86
89
92
95
98
\.
COPY public.ranged (id) FROM stdin;
1
2
3
4
5
6
7
8
9
10
11
12
13
14
15
16
17
18
19
20
21
22
23
24
25
26
27
28
29
30
31
32
33
34
35
36
37
38
39
40
41
42
43
44
45
46
47
48
49
50
51
52
53
54
55
56
57
58
59
60
61
62
63
64
65
66
67
68
69
70
71
72
73
74
75
76
77
78
79
80
81
82
83
84
85
86
87
88
89
90
91
92
93
94
95
96
97
98
99
100
101
102
103
104
105
106
107
108
109
110
111
112
113
114
115
116
117
118
119
120
121
122
123
124
125
126
127
128
129
130
131
132
133
134
135
136
137
138
139
140
141
142
143
144
145
146
147
148
149
150
151
152
153
154
155
156
157
158
159
160
161
162
163
164
165
166
167
168
169
170
171
172
173
174
175
176
177
178
179
180
181
182
183
184
185
186
187
188
189
190
191
192
193
194
195
196
197
198
199
200
201
202
203
204
205
206
207
208
209
210
211
212
213
214
215
216
217
218
219
220
221
222
223
224
225
226
227
228
229
230
231
232
233
234
235
236
237
238
239
240
241
242
243
244
245
246
247
248
249
250
251
252
253
254
255
256
257
258
259
260
261
262
263
264
265
266
267
268
269
270
271
272
273
274
275
276
277
278
279
280
281
282
283
284
285
286
287
288
289
290
291
292
293
294
295
296
297
298
299
300
301
302
303
304
305
306
307
308
309
310
311
312
313
314
315
316
317
318
319
320
321
322
323
324
325
326
327
328
329
330
331
332
333
334
335
336
337
338
339
340
341
342
343
344
345
346
347
348
349
350
351
352
353
354
355
356
357
358
359
360
361
362
363
364
365
366
367
368
369
370
371
372
373
374
375
376
377
378
379
380
381
382
383
384
385
386
387
388
389
390
391
392
393
394
395
396
397
398
399
400
\.
COPY public."without options" (a) FROM stdin;
1
2
\.
REFRESH MATERIALIZED VIEW public.summary;
