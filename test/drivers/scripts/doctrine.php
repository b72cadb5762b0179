<?php
// Doctrine: its DBAL, its schema tools and its ORM, as their manuals show them.
error_reporting(E_ALL & ~E_DEPRECATED & ~E_USER_DEPRECATED);
require_once 'Doctrine/ORM/autoload.php';
require_once 'Doctrine/DBAL/autoload.php';

use Doctrine\DBAL\ArrayParameterType;
use Doctrine\DBAL\DriverManager;
use Doctrine\DBAL\Exception as DBALException;
use Doctrine\DBAL\LockMode;
use Doctrine\DBAL\Schema\Column;
use Doctrine\DBAL\Schema\Comparator;
use Doctrine\DBAL\Schema\Index;
use Doctrine\DBAL\Schema\Schema;
use Doctrine\DBAL\Schema\Table;
use Doctrine\DBAL\TransactionIsolationLevel;
use Doctrine\DBAL\Types\Type;
use Doctrine\DBAL\Types\Types;
use Doctrine\ORM\EntityManager;
use Doctrine\ORM\ORMSetup;
use Doctrine\ORM\Mapping as ORM;
use Doctrine\ORM\Tools\SchemaTool;
use Doctrine\ORM\Tools\Pagination\Paginator;

$params = ['driver' => 'pdo_pgsql', 'host' => getenv('PGHOST'), 'port' => getenv('PGPORT'), 'user' => getenv('PGUSER'), 'dbname' => getenv('PGDATABASE')];

#[ORM\Entity, ORM\Table(name: 'authors')]
class Author {
    #[ORM\Id, ORM\GeneratedValue, ORM\Column] public ?int $id = null;
    #[ORM\Column(length: 50, unique: true)] public string $name;
    #[ORM\Column(type: 'json', options: ['jsonb' => true])] public array $data = [];
    #[ORM\Column(type: 'datetimetz_immutable', nullable: true)] public ?DateTimeImmutable $made = null;
    #[ORM\Column(type: 'integer'), ORM\Version] public int $version = 1;
    #[ORM\OneToMany(mappedBy: 'author', targetEntity: Book::class, cascade: ['persist', 'remove'])] public $books;
    public function __construct(string $name) { $this->name = $name; $this->books = new Doctrine\Common\Collections\ArrayCollection(); $this->made = new DateTimeImmutable('2026-02-03 04:05:06+00:00'); }
}

#[ORM\Entity, ORM\Table(name: 'books'), ORM\Index(columns: ['title'], name: 'books_title')]
class Book {
    #[ORM\Id, ORM\GeneratedValue(strategy: 'IDENTITY'), ORM\Column] public ?int $id = null;
    #[ORM\Column(type: 'text')] public string $title;
    #[ORM\Column(type: 'decimal', precision: 10, scale: 2)] public string $price = '1.50';
    #[ORM\ManyToOne(inversedBy: 'books'), ORM\JoinColumn(onDelete: 'CASCADE')] public ?Author $author;
    #[ORM\ManyToMany(targetEntity: Subject::class, cascade: ['persist'])] public $subjects;
    public function __construct(string $title, ?Author $author) { $this->title = $title; $this->author = $author; $this->subjects = new Doctrine\Common\Collections\ArrayCollection(); }
}

#[ORM\Entity, ORM\Table(name: 'subjects')]
class Subject {
    #[ORM\Id, ORM\Column(type: 'guid')] public string $id;
    #[ORM\Column(type: 'simple_array', nullable: true)] public array $words = ['a', 'b'];
    public function __construct(int $n) { $this->id = sprintf('00000000-0000-0000-0000-%012d', $n); }
}

$config = ORMSetup::createAttributeMetadataConfiguration([__DIR__], true, sys_get_temp_dir() . '/doctrine-' . getmypid(), new Symfony\Component\Cache\Adapter\ArrayAdapter());
$db = DriverManager::getConnection($params);
$em = new EntityManager($db, $config);
$classes = array_map(fn ($c) => $em->getClassMetadata($c), [Author::class, Book::class, Subject::class]);

function want($got, $expected) { if (json_encode($got) !== json_encode($expected)) throw new Exception(json_encode($got) . ' is not ' . json_encode($expected)); }

// declare_key says which column shards a table, where there are shards.
function declare_key($db, string $table, string $column) {
    try {
        $db->executeQuery('SELECT cleave.declare(?, shard_key => ?)', [$table, $column]);
    } catch (DBALException\DriverException $e) {
        if ($e->getSQLState() !== '3F000') throw $e;
    }
}

$tests = [
    'server' => function () use ($db) { want(str_starts_with($db->getDatabase(), getenv('PGDATABASE')), true); want(get_class($db->getDatabasePlatform()) !== '', true); },
    'creates_schema' => function () use ($em, $classes) { (new SchemaTool($em))->createSchema($classes); },
    'schema_is_up_to_date' => function () use ($em, $classes) { want((new SchemaTool($em))->getUpdateSchemaSql($classes, true), []); },
    'persists' => function () use ($em) {
        $a = new Author('a'); $a->data = ['x' => [1, null]];
        foreach (range(1, 60) as $i) { $b = new Book("t$i", $a); $a->books->add($b); if ($i < 4) $b->subjects->add(new Subject($i)); }
        $em->persist($a); $em->flush(); $em->clear();
        $a = $em->getRepository(Author::class)->findOneBy(['name' => 'a']);
        want([$a->id, $a->data, $a->made->format('c'), count($a->books), $a->books[0]->price], [1, ['x' => [1, null]], '2026-02-03T04:05:06+00:00', 60, '1.50']);
        want($a->books[0]->subjects[0]->words, ['a', 'b']);
        $em->clear();
    },
    'queries' => function () use ($em) {
        want((int) $em->createQuery('SELECT COUNT(b) FROM Book b JOIN b.author a WHERE a.name = :n')->setParameter('n', 'a')->getSingleScalarResult(), 60);
        want($em->createQuery("SELECT a.name, COUNT(b.id) AS n, SUM(b.price) AS s FROM Author a LEFT JOIN a.books b GROUP BY a.id, a.name HAVING COUNT(b.id) > 1")->getArrayResult()[0]['n'], 60);
        want($em->createQueryBuilder()->update(Book::class, 'b')->set('b.price', 'b.price + 1')->where('b.title LIKE :t')->setParameter('t', 't1%')->getQuery()->execute(), 11);
        want(count(new Paginator($em->createQuery('SELECT a, b FROM Author a JOIN a.books b ORDER BY b.id')->setMaxResults(5))), 1);
        $n = 0; foreach ($em->createQuery('SELECT b FROM Book b')->toIterable() as $b) $n++; want($n, 60);
        want(count($em->createQuery('SELECT b FROM Book b WHERE b.id IN (:ids)')->setParameter('ids', range(1, 30))->getResult()), 30);
        $em->clear();
    },
    'locks' => function () use ($em, $db) {
        $em->wrapInTransaction(function ($em) { $a = $em->find(Author::class, 1, LockMode::PESSIMISTIC_WRITE); $a->name = 'b'; });
        $a = $em->find(Author::class, 1); want($a->version, 2);
        $db->executeStatement('UPDATE authors SET version = 9 WHERE id = 1'); $a->name = 'c';
        try { $em->flush(); throw new Exception('no error'); } catch (Doctrine\ORM\OptimisticLockException $e) { }
        $em->clear();
    },
    'removes' => function () use (&$em, $db, $config) {
        $em = new EntityManager($db, $config);
        $em->remove($em->find(Book::class, 1)); $em->flush();
        want($em->getRepository(Book::class)->count([]), 59);
    },
    'evolves_schema' => function () use ($db) {
        $m = $db->createSchemaManager(); $from = $m->introspectSchema(); $to = clone $from;
        $t = $to->getTable('books'); $t->addColumn('pages', 'integer', ['default' => 3, 'comment' => 'how long']); $t->addIndex(['pages'], 'books_pages'); $t->modifyColumn('title', ['type' => Type::getType('string'), 'length' => 100]);
        $n = $to->createTable('extra'); $n->addColumn('id', 'bigint', ['autoincrement' => true]); $n->setPrimaryKey(['id']); $n->addColumn('book', 'integer'); $n->addForeignKeyConstraint('books', ['book'], ['id'], ['onDelete' => 'CASCADE'], 'extra_book');
        foreach ($m->createComparator()->compareSchemas($from, $to)->toSql($db->getDatabasePlatform()) as $sql) $db->executeStatement($sql);
        want($m->introspectTable('books')->getColumn('pages')->getComment(), 'how long');
        want($m->createComparator()->compareSchemas($m->introspectSchema(), $to)->toSql($db->getDatabasePlatform()), []);
        foreach ($m->createComparator()->compareSchemas($m->introspectSchema(), $from)->toSql($db->getDatabasePlatform()) as $sql) $db->executeStatement($sql);
    },
    'introspects' => function () use ($db) {
        $m = $db->createSchemaManager();
        want(array_diff(['authors', 'book_subject', 'books', 'subjects'], $m->listTableNames()), []);
        want(array_map(fn ($c) => $c->getName(), array_values($m->listTableColumns('books'))), ['id', 'author_id', 'title', 'price']);
        want(array_keys($m->listTableIndexes('books')), ['books_title', 'idx_4a1b2a92f675f31b', 'primary']);
        want(count($m->listTableForeignKeys('book_subject')), 2);
        want(in_array('authors_id_seq', array_map(fn ($s) => $s->getName(), $m->listSequences())), true);
        want(in_array(getenv('PGDATABASE'), $m->listDatabases()), true); want(in_array('public', $m->listSchemaNames()), true); want(count($m->listViews()) >= 0, true);
    },
    'transactions' => function () use ($db) {
        $db->setNestTransactionsWithSavepoints(true);
        $db->beginTransaction(); $db->insert('subjects', ['id' => '10000000-0000-0000-0000-000000000000', 'words' => 'x']);
        $db->beginTransaction(); $db->insert('subjects', ['id' => '20000000-0000-0000-0000-000000000000', 'words' => 'x']); $db->rollBack();
        $db->commit();
        want((int) $db->fetchOne("SELECT count(*) FROM subjects WHERE words = ?", ['x']), 1);
        foreach ([TransactionIsolationLevel::SERIALIZABLE, TransactionIsolationLevel::REPEATABLE_READ, TransactionIsolationLevel::READ_COMMITTED] as $l) { $db->setTransactionIsolation($l); want($db->transactional(fn ($c) => (int) $c->fetchOne('SELECT 1')), 1); }
    },
    'errors' => function () use ($db) {
        foreach ([DBALException\UniqueConstraintViolationException::class => "INSERT INTO authors (id, name, data, version) SELECT 100, name, data, 1 FROM authors", DBALException\NotNullConstraintViolationException::class => 'INSERT INTO authors (id) VALUES (101)',
            DBALException\ForeignKeyConstraintViolationException::class => "INSERT INTO books (author_id, title, price) VALUES (0, 'x', 1)", DBALException\TableNotFoundException::class => 'SELECT * FROM nowhere', DBALException\SyntaxErrorException::class => 'SELEC',
            DBALException\InvalidFieldNameException::class => 'SELECT nothing FROM books', DBALException\NonUniqueFieldNameException::class => 'SELECT id FROM books a, books b', DBALException\TableExistsException::class => 'CREATE TABLE books (id int)'] as $class => $sql)
            try { $db->executeStatement($sql); throw new Exception("no $class"); } catch (DBALException\DriverException $e) { want(get_class($e), $class); }
    },
    'types' => function () use ($db) {
        $db->executeStatement('CREATE TABLE kinds (k int PRIMARY KEY, b bytea, t boolean, d date, f double precision, j jsonb, n numeric(20,5), tz timestamptz)');
        $db->insert('kinds', ['k' => 1, 'b' => "\x00\xff'", 't' => false, 'd' => new DateTime('2026-02-03'), 'f' => 1.5e300, 'j' => ['a' => "é"], 'n' => '123456789012345.00001', 'tz' => new DateTime('2026-02-03 01:00:00+02:00')], [Types::INTEGER, Types::BINARY, Types::BOOLEAN, Types::DATE_MUTABLE, Types::FLOAT, Types::JSON, Types::DECIMAL, Types::DATETIMETZ_MUTABLE]);
        $r = $db->fetchAssociative('SELECT * FROM kinds');
        want([bin2hex(stream_get_contents($r['b'])), $r['t'], $r['d'], (float) $r['f'], $r['j'], $r['n']], ['00ff27', false, '2026-02-03', 1.5e300, '{"a": "\u00e9"}' === $r['j'] ? $r['j'] : '{"a": "é"}', '123456789012345.00001']);
        want($db->convertToPHPValue($r['tz'], Types::DATETIMETZ_MUTABLE)->getTimestamp(), 1770073200);
        $db->executeStatement('DROP TABLE kinds');
    },
    'last_insert_id' => function () use ($db) {
        $db->executeStatement('CREATE TABLE ids (id serial PRIMARY KEY, v text)'); $db->insert('ids', ['v' => 'a']);
        try { want((int) $db->lastInsertId('ids_id_seq'), 1); } finally { $db->executeStatement('DROP TABLE ids'); }
    },
    'last_insert_id_of_any' => function () use ($db) {
        $db->executeStatement('CREATE TABLE ids (id serial PRIMARY KEY, v text)'); $db->insert('ids', ['v' => 'a']);
        try { want((int) $db->lastInsertId(), 1); } finally { $db->executeStatement('DROP TABLE ids'); }
    },
    'sharded' => function () use ($db) {
        declare_key($db, 'orders', 'tenant_id');
        $t = new Table('orders'); foreach (['tenant_id', 'id'] as $c) $t->addColumn($c, 'bigint'); $t->addColumn('price', 'decimal', ['precision' => 10, 'scale' => 2]); $t->setPrimaryKey(['tenant_id', 'id']);
        $m = $db->createSchemaManager(); $m->createTable($t);
        for ($i = 0; $i < 90; $i++) $db->insert('orders', ['tenant_id' => $i % 9, 'id' => $i, 'price' => $i]);
        want($db->fetchFirstColumn('SELECT id FROM orders WHERE tenant_id = :t ORDER BY id LIMIT 3', ['t' => 3]), [3, 12, 21]);
        want($db->createQueryBuilder()->select('tenant_id', 'SUM(price) AS s')->from('orders')->groupBy('tenant_id')->orderBy('tenant_id')->setMaxResults(2)->fetchAllKeyValue(), ['0' => '405.00', '1' => '415.00']);
        want(count($db->fetchAllAssociative('SELECT * FROM orders WHERE tenant_id IN (?) AND price > ?', [[1, 2], 70], [ArrayParameterType::INTEGER, null])), 4);
        want([$db->update('orders', ['price' => 5], ['tenant_id' => 4]), $db->delete('orders', ['tenant_id' => 5, 'id' => 5]), $db->executeStatement('DELETE FROM orders WHERE price > 80')], [10, 1, 8]);
        $n = 0; foreach ($db->iterateAssociative('SELECT * FROM orders') as $r) $n++; want($n, 81);
        want(array_map(fn ($c) => $c->getName(), array_values($m->listTableColumns('orders'))), ['tenant_id', 'id', 'price']);
        $m->dropTable('orders');
    },
    'drops_schema' => function () use ($em, $db, $classes) { (new SchemaTool($em))->dropSchema($classes); want($db->createSchemaManager()->tablesExist(['authors']), false); },
];
foreach ($tests as $name => $f) {
    try { $f(); echo "ok $name\n"; } catch (Throwable $e) { while ($db->isTransactionActive()) $db->rollBack(); echo "not ok $name: ", get_class($e), ' ', str_replace("\n", ' ', $e->getMessage()), ' ', $e->getLine(), "\n"; }
}
echo "end\n";
